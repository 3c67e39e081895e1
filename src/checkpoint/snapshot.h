// A copy of what a rank gives to a checkpoint, in memory that is kept from one to the next.
#pragma once

#include <cstddef>

#include "reigen/checkpoint/checkpoint.h"

namespace reigen::checkpoint {

class Snapshot {
 public:
  Snapshot() = default;
  ~Snapshot();
  Snapshot(const Snapshot&) = delete;  // pieces point into its memory
  Snapshot& operator=(const Snapshot&) = delete;

  // What copy() of contents of that size needs, of the kernel and written once. Throws as copy() does.
  void reserve(std::size_t bytes);
  // The same pieces, of this memory; until the next copy. Throws IoError 71 when there is not enough.
  Contents copy(const Contents& contents);

  static std::size_t bytes_for(const Contents& contents);

 private:
  void take(std::size_t bytes);

  std::byte* memory_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace reigen::checkpoint
