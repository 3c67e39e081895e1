// A piece of shared memory without a name: a memfd, mapped by whoever can open it. Nothing is left behind when its
// owners die.
//
// Ranks that are threads of one process share one mapping, so that a race between them is one on the same addresses
// (ThreadSanitizer sees it).
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "reigen/base/unique_fd.h"

namespace reigen::comm::shared_memory {

// Enough to open a segment from another process of this machine.
struct SegmentAddress {
  std::int32_t pid = 0;
  std::int32_t fd = -1;
  std::uint64_t inode = 0;
  std::uint64_t size = 0;
};

class Segment {
 public:
  // Takes the memory at once, so that the lack of it is an error here (IoError 71) and not a SIGBUS later.
  static std::shared_ptr<Segment> create(std::size_t size);
  // Throws IoError naming the process when it cannot be opened: gone, another user's, another machine's.
  static std::shared_ptr<Segment> open(const SegmentAddress& address);
  ~Segment();
  Segment(const Segment&) = delete;  // owns a mapping
  Segment& operator=(const Segment&) = delete;

  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }
  const SegmentAddress& address() const { return address_; }

 private:
  Segment(UniqueFd fd, const SegmentAddress& address);

  UniqueFd fd_;
  SegmentAddress address_;
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace reigen::comm::shared_memory
