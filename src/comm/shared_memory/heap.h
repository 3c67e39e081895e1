// A rank's heap of shared memory, and the view that other ranks have of it.
//
// The owner hands out blocks. Other ranks know a block by (segment number, offset), and map a segment when they first
// need it. The heap's directory is itself a segment, so a peer needs only the address of the directory.
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

// The first bytes of the directory segment. The first `count` entries of `segments` never change.
struct HeapDirectory {
  std::atomic<std::uint32_t> count{0};
  std::array<SegmentAddress, kSegmentsMax> segments{};
};

// Where a buffer lies: in the heap of its owner, in common memory, which every rank has mapped itself, or in memory
// that other ranks cannot reach (kNo).
enum class Visible : std::uint32_t { kNo, kInHeap, kInCommon };

struct Location {
  std::uint64_t segment = 0;  // the segment's number in the owner's heap; for common memory, its inode
  std::uint64_t offset = 0;
  Visible visible = Visible::kNo;

  bool is_reachable() const { return visible != Visible::kNo; }
};

// Thread rule: any thread. The blocks that it handed out keep the heap alive.
class Heap : public std::enable_shared_from_this<Heap> {
 public:
  // `medium`: the device whose memory the heap allocates; null: the host.
  explicit Heap(std::shared_ptr<Medium> medium = nullptr);

  // Memory that is zeroed and aligned to 64 bytes (to a page from 4 KiB up). Throws IoError (exit code 71) when there
  // is not enough memory.
  std::shared_ptr<void> allocate(std::size_t bytes);
  // The block in which `pointer` lies; the block lives as long as the result. Null for other memory.
  std::shared_ptr<void> hold(const void* pointer) const { return live_->hold(pointer); }
  // The location of [pointer, pointer + bytes); kNo if any of these bytes is in neither this heap nor common memory of
  // `group`, the group whose ranks must reach the bytes. Common memory of a group from which `group` was split counts
  // too.
  Location locate(const void* pointer, std::size_t bytes, const std::string& group = {}) const;
  // Adds common memory, which is a segment that all ranks of a group map. The heap knows the segment as long as the
  // result lives.
  std::shared_ptr<void> add_common(std::shared_ptr<Segment> segment, const std::string& group);
  // Whether any of [pointer, pointer + bytes) is common memory of any group that has this heap.
  bool is_common(const void* pointer, std::size_t bytes) const;
  bool has_common() const { return has_common_.load(std::memory_order_relaxed); }  // true also after it was released
  // The address of `location` in this process; null when this rank has released that common memory.
  std::byte* resolve_common(const Location& location) const;
  // From now on the heap never reuses freed memory, because a late peer may still write to it.
  void quarantine();

  const SegmentAddress& directory_address() const { return directory_segment_->address(); }

 private:
  struct FreeBlock {
    std::uint32_t segment;
    std::size_t offset;
    std::size_t size;
    std::size_t used;  // this many first bytes may hold old data and are zeroed before reuse
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
    std::string group;  // the group whose ranks map it
  };
  std::map<const std::byte*, Common> common_;  // by the begin of the memory
  std::atomic<bool> has_common_{false};
  std::vector<FreeBlock> free_;  // ordered by (segment, offset), neighbours merged
  const std::shared_ptr<BlockTable> live_ = std::make_shared<BlockTable>();  // blocks that are handed out
  bool quarantined_ = false;
};

// Another rank's heap as this rank sees it. Used by one thread at a time.
class PeerHeap {
 public:
  // `medium`: the same as the medium of the other rank's heap.
  explicit PeerHeap(const SegmentAddress& directory, std::shared_ptr<Medium> medium = nullptr);
  // The address of `location` in this process. Throws IoError when the owner is gone and this rank has never mapped
  // the segment.
  std::byte* resolve(const Location& location);

 private:
  const std::shared_ptr<Medium> medium_;
  std::shared_ptr<Segment> directory_segment_;
  const HeapDirectory* directory_;
  std::vector<std::shared_ptr<Segment>> segments_;
};

}  // namespace reigen::comm::shared_memory
