// A copy of the pieces that a rank saves in a checkpoint, in memory that is kept from one checkpoint to the next.
#pragma once

#include <cstddef>

#include "reigen/checkpoint/checkpoint.h"

namespace reigen::checkpoint {

class Snapshot {
 public:
  Snapshot() = default;
  ~Snapshot();
  Snapshot(const Snapshot&) = delete;  // the copied pieces point into its memory
  Snapshot& operator=(const Snapshot&) = delete;

  // Takes the memory that copy() needs for contents of `bytes` bytes, and writes to each page, so that the kernel
  // provides it now. Throws the errors of copy().
  void reserve(std::size_t bytes);
  // Copies the bytes of all pieces into this object's memory, and returns the pieces with these copies. The copies are
  // valid until the next copy(). Throws IoError with exit code 71 if there is not enough memory.
  Contents copy(const Contents& contents);

  static std::size_t bytes_for(const Contents& contents);

 private:
  void take(std::size_t bytes);

  std::byte* memory_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace reigen::checkpoint
