// A piece of shared memory without a name: a memfd, mapped by whoever can open it. Nothing is left behind when its
// owners die.
//
// Ranks that are threads of one process share one mapping, so that a race between them is one on the same addresses
// (ThreadSanitizer sees it).
#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace reigen::comm::shared_memory {

// Enough to open a segment from another process of this machine.
struct SegmentAddress {
  std::int32_t pid = 0;
  std::int32_t fd = -1;
  std::uint64_t inode = 0;  // what no other segment of the process has
  std::uint64_t size = 0;
  std::array<char, 64> word = {};  // of a device's memory: what its driver opens it by
};

class Segment {
 public:
  // Takes the memory at once, so that the lack of it is an error here (IoError 71) and not a SIGBUS later.
  static std::shared_ptr<Segment> create(std::size_t size);
  // Throws IoError naming the process when it cannot be opened: gone, another user's, another machine's.
  static std::shared_ptr<Segment> open(const SegmentAddress& address);
  // Memory of another kind (medium.h): `memory` gives it back.
  static std::shared_ptr<Segment> of(std::shared_ptr<void> memory, const SegmentAddress& address);
  // The one of this process that has the address. Throws IoError when it is gone.
  static std::shared_ptr<Segment> here(const SegmentAddress& address);
  ~Segment();
  Segment(const Segment&) = delete;  // owns a mapping
  Segment& operator=(const Segment&) = delete;

  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }
  const SegmentAddress& address() const { return address_; }

 private:
  Segment(std::shared_ptr<void> memory, const SegmentAddress& address);

  SegmentAddress address_;
  std::shared_ptr<void> memory_;
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace reigen::comm::shared_memory
