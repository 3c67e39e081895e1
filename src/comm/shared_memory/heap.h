// Heap is a rank's heap of shared memory. PeerHeap is another rank's heap as this rank sees it.
//
// A rank allocates blocks in segments of its heap. Other ranks refer to a block by segment number and offset, and map a
// segment when they first need it. The directory, which lists the heap's segments, is itself a segment. So another rank
// needs only the address of the directory.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "comm/call/block_table.h"
#include "comm/shared_memory/medium.h"
#include "comm/shared_memory/segment.h"

namespace reigen::comm::shared_memory {

inline constexpr std::size_t kSegmentsMax = 1024;

// The content of the directory segment. The first `count` entries of `segments` never change.
struct HeapDirectory {
  std::atomic<std::uint32_t> count{0};
  std::array<SegmentAddress, kSegmentsMax> segments{};
};

// Where a buffer of a rank lies: in memory that other ranks cannot reach (kNo), in the rank's own heap, or in common
// memory (allocate_shared), which every rank of a group has mapped.
enum class Visible : std::uint32_t { kNo, kInHeap, kInCommon };

struct Location {
  std::uint64_t segment = 0;  // the segment's number in the rank's heap; for common memory, its inode
  std::uint64_t offset = 0;
  Visible visible = Visible::kNo;

  bool is_reachable() const { return visible != Visible::kNo; }
};

// Allocated blocks keep their heap alive. Thread rule: any thread.
class Heap : public std::enable_shared_from_this<Heap> {
 public:
  // `medium`: the device whose memory the heap allocates; null for host memory.
  explicit Heap(std::shared_ptr<Medium> medium = nullptr);

  // Allocates zeroed memory. It is aligned to 64 bytes, or to 4 KiB if it has at least 4 KiB. Throws IoError (exit code
  // 71) when there is not enough memory.
  std::shared_ptr<void> allocate(std::size_t bytes);
  // The block of allocate() in which `pointer` lies; it stays alive as long as the result. Null for other memory.
  std::shared_ptr<void> hold(const void* pointer) const { return live_->hold(pointer); }
  // The location of [pointer, pointer + bytes), for the ranks of `group`. The bytes must all lie in this heap, or in
  // common memory of `group` or of a group from which `group` was split. Otherwise the result is kNo.
  Location locate(const void* pointer, std::size_t bytes, const std::string& group = {}) const;
  // Adds common memory: a segment that all ranks of `group` map. The heap forgets the segment when the last owner of
  // the result drops it.
  std::shared_ptr<void> add_common(std::shared_ptr<Segment> segment, const std::string& group);
  // Whether any of [pointer, pointer + bytes) is common memory of a group that uses this heap.
  bool is_common(const void* pointer, std::size_t bytes) const;
  bool has_common() const { return has_common_.load(std::memory_order_relaxed); }  // stays true after its release
  // The address in this process of a location in common memory. Null when this rank has released that memory.
  std::byte* resolve_common(const Location& location) const;
  // From now on the heap never reuses freed memory, because another rank may still write to it.
  void quarantine();

  const SegmentAddress& directory_address() const { return directory_segment_->address(); }

 private:
  struct FreeBlock {
    std::uint32_t segment;
    std::size_t offset;
    std::size_t size;
    std::size_t used;  // the first `used` bytes may contain old data; they are zeroed before reuse
  };

  std::byte* take(std::size_t size, std::size_t alignment);
  void add_segment(std::size_t size);
  void give_back(std::byte* data, std::size_t size);

  const std::shared_ptr<Medium> medium_;
  mutable std::mutex mutex_;
  std::shared_ptr<Segment> directory_segment_;
  HeapDirectory* directory_;
  std::vector<std::shared_ptr<Segment>> segments_;
  std::map<const std::byte*, std::uint32_t> by_address_;  // begin of a segment -> its number
  struct Common {
    SegmentAddress address;
    std::string group;  // the group whose ranks map the memory
  };
  std::map<const std::byte*, Common> common_;  // by the first byte of the memory
  std::atomic<bool> has_common_{false};
  std::vector<FreeBlock> free_;  // ordered by (segment, offset); adjacent blocks are merged
  const std::shared_ptr<BlockTable> live_ = std::make_shared<BlockTable>();  // the blocks that are in use
  bool quarantined_ = false;
};

// Another rank's heap as this rank sees it. Thread rule: one thread at a time.
class PeerHeap {
 public:
  // `medium`: a device of the same kind as the device of the other rank's heap; null for host memory.
  explicit PeerHeap(const SegmentAddress& directory, std::shared_ptr<Medium> medium = nullptr);
  // The address of `location` in this process. Throws IoError when the other rank is gone and this rank has never
  // mapped the segment.
  std::byte* resolve(const Location& location);

 private:
  const std::shared_ptr<Medium> medium_;
  std::shared_ptr<Segment> directory_segment_;
  const HeapDirectory* directory_;
  std::vector<std::shared_ptr<Segment>> segments_;
};

}  // namespace reigen::comm::shared_memory
