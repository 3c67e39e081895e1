// A segment of shared memory. In host memory it is a memfd, a file without a name: a process that can open the file may
// map it. The kernel frees the memory when no process has the file open or mapped any more.
//
// Ranks that are threads of one process share one mapping of a segment. A race between them is then a race on the same
// address, so ThreadSanitizer can see it.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace reigen::comm::shared_memory {

// All that another process of this machine needs to open a segment.
struct SegmentAddress {
  std::int32_t pid = 0;
  std::int32_t fd = -1;
  std::uint64_t inode = 0;  // different for every segment of the process
  std::uint64_t size = 0;
  std::array<char, 64> word = {};  // for device memory: the handle with which the device's driver opens the segment
};

class Segment {
 public:
  // Allocates the memory at once, so that a lack of memory is an error here (IoError, exit code 71) and not a SIGBUS
  // later.
  static std::shared_ptr<Segment> create(std::size_t size);
  // Throws IoError naming the process when the segment cannot be opened: the process that made it is gone, or belongs
  // to another user or to another machine.
  static std::shared_ptr<Segment> open(const SegmentAddress& address);
  // Makes a Segment object for memory that this process has mapped already. It may be memory of a device (medium.h).
  // The deleter of `memory` frees the memory.
  static std::shared_ptr<Segment> of(std::shared_ptr<void> memory, const SegmentAddress& address);
  // The segment with this address, which a rank of this process made. Throws IoError when the segment is gone.
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
