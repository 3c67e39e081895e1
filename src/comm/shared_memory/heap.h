// A rank's heap of shared memory, and the view that other ranks have of it.
//
// The owner hands out blocks; a block is named by (segment number, offset) to the others, who map segments when they
// first meet them. The heap's directory is itself a segment, so its address is all that a peer must know.
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

// The first bytes of the directory segment: entries below `count` never change.
struct HeapDirectory {
  std::atomic<std::uint32_t> count{0};
  std::array<SegmentAddress, kSegmentsMax> segments{};
};

// Where a buffer lies: in its owner's heap, or in common memory, which every rank has mapped itself.
enum class Visible : std::uint32_t { kNo, kInHeap, kInCommon };

struct Location {
  std::uint64_t segment = 0;  // number in the owner's heap; inode of common memory
  std::uint64_t offset = 0;
  Visible visible = Visible::kNo;

  bool is_reachable() const { return visible != Visible::kNo; }
};

// Thread rule: any thread. Kept alive by the blocks it handed out.
class Heap : public std::enable_shared_from_this<Heap> {
 public:
  // `medium`: whose memory it is; null: the host's.
  explicit Heap(std::shared_ptr<Medium> medium = nullptr);

  // Zeroed, aligned to 64 bytes (to a page from 4 KiB up). Throws IoError (71).
  std::shared_ptr<void> allocate(std::size_t bytes);
  // The block in which `pointer` lies, kept as long as the result; null for other memory.
  std::shared_ptr<void> hold(const void* pointer) const { return live_->hold(pointer); }
  // The place of [pointer, pointer + bytes); not visible if any of it is foreign.
  // `group`: whose ranks shall reach it; common memory of another group, unless this one was split off it, is foreign.
  Location locate(const void* pointer, std::size_t bytes, const std::string& group = {}) const;
  // Common memory: a segment that all ranks of a group map. It is known here as long as what this returns lives.
  std::shared_ptr<void> add_common(std::shared_ptr<Segment> segment, const std::string& group);
  // Whether any of [pointer, pointer + bytes) is common memory, of any group that has this heap.
  bool is_common(const void* pointer, std::size_t bytes) const;
  bool has_common() const { return has_common_.load(std::memory_order_relaxed); }  // or had some
  // Null when this rank has dropped it.
  std::byte* resolve_common(const Location& location) const;
  // From now on nothing freed is handed out again: a late peer may still write there.
  void quarantine();

  const SegmentAddress& directory_address() const { return directory_segment_->address(); }

 private:
  struct FreeBlock {
    std::uint32_t segment;
    std::size_t offset;
    std::size_t size;
    std::size_t used;  // so many bytes from its begin held data once: must be zeroed
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
    std::string group;  // whose ranks have it
  };
  std::map<const std::byte*, Common> common_;  // by its begin
  std::atomic<bool> has_common_{false};
  std::vector<FreeBlock> free_;  // ordered by (segment, offset), neighbours merged
  const std::shared_ptr<BlockTable> live_ = std::make_shared<BlockTable>();  // handed out
  bool quarantined_ = false;
};

// Another rank's heap as this rank sees it. Used by one thread at a time.
class PeerHeap {
 public:
  // `medium`: as of the Heap.
  explicit PeerHeap(const SegmentAddress& directory, std::shared_ptr<Medium> medium = nullptr);
  // Throws IoError when the owner is gone before its segment was ever mapped here.
  std::byte* resolve(const Location& location);

 private:
  const std::shared_ptr<Medium> medium_;
  std::shared_ptr<Segment> directory_segment_;
  const HeapDirectory* directory_;
  std::vector<std::shared_ptr<Segment>> segments_;
};

}  // namespace reigen::comm::shared_memory
