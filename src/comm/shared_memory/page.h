// The page of shared memory through which a rank talks to the other ranks. Only its owner writes to the page, except
// for the bell, which the other ranks ring.
//
// Ranks report progress by counters that only grow, never by locks, so a rank that is killed leaves nothing locked.
// The counters for which ranks sleep are stored and read sequentially consistently. A sleeper first counts itself in
// `sleepers` and then reads the counters again. A rank that makes progress first stores its counter and then reads
// `sleepers`. So at least one of the two sees the other, and no sleeper misses its wake-up.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "comm/call/call.h"
#include "comm/call/tag.h"
#include "comm/shared_memory/heap.h"
#include "comm/shared_memory/ways.h"

namespace reigen::comm::shared_memory {

inline constexpr std::uint32_t kPageVersion = 12;
inline constexpr std::size_t kRingSlots = 64;   // operations that may be in flight at once; more wait for their turn
inline constexpr std::size_t kInlineSlots = 8;  // inputs stored next to calls; few enough to remain in the caches
inline constexpr std::size_t kTinyBytes = 16;   // inputs up to this size lie in the first cache line of the call's slot
inline constexpr std::size_t kStagingBytes =
    256 * 1024;  // remains in the second-level cache while it is copied and added
inline constexpr std::size_t kDeviceStagingBytes = std::size_t{8} << 20;  // a meeting costs the time of moving 30 MB

// The call of a rank. The other ranks compare it with their own call, and find in it the locations of the rank's
// buffers.
struct Descriptor {
  std::uint64_t count;        // elements of a block; uneven: of all blocks
  std::uint64_t counts_hash;  // uneven: hash of the counts
  double factor;
  OperationKind kind;
  DataType type;
  ReduceOp op;
  Way way;  // as chosen at the call; a fused call may later need staging buffers
  std::int32_t root;
  std::array<std::byte, kTinyBytes> tiny;
  bool writes_common;  // this rank's output lies in common memory, which other ranks use too
  Tag tag;
  Location input;   // written by fused and two_shot calls and by every all_gather; else the value of an earlier call
  Location output;  // the same
  std::array<std::uint64_t, kCountsShown> counts;
};

// The fields that ranks compare in every call come first. So the other ranks read only one cache line for a tiny call
// without a tag.
struct alignas(64) Slot {
  std::atomic<std::uint64_t> posted{0};  // number of calls so far; set when this call is announced
  Descriptor call;
};

static_assert(offsetof(Slot, call) + offsetof(Descriptor, tag) < 64, "what tells a tiny call is in one cache line");

enum class RankState : std::uint32_t { kAlive, kLeft, kAborted };

// The counters grow over all calls. A call runs in one or more rounds (collectives.h).
struct RankPage {
  std::uint32_t version = kPageVersion;
  // Device memory: the location of the staging buffer, written before the page is announced. Host memory uses `staging`
  // below.
  Location staging_at = {};
  alignas(64) std::atomic<std::uint64_t> posted{0};    // operations posted; stored just after the slot's own count
  std::atomic<std::uint64_t> order{0};                 // the number of the rank's last call, counted over both lanes
  alignas(64) std::atomic<std::uint64_t> arrived{0};   // rounds whose input this rank has staged
  alignas(64) std::atomic<std::uint64_t> verified{0};  // operations whose descriptors this rank has compared
  std::atomic<std::uint64_t> finished{0};              // rounds in which this rank has done its part
  alignas(64) std::atomic<std::uint32_t> bell{0};      // futex; other ranks ring it
  std::atomic<std::uint32_t> sleepers{0};
  alignas(64) std::atomic<std::uint64_t> heartbeat{0};
  std::atomic<RankState> state{RankState::kAlive};
  std::uint32_t cause_kind = 0;  // written before `state` becomes kAborted
  std::int32_t cause_rank = -1;
  char cause[2048] = {};
  alignas(64) std::array<Slot, kRingSlots> ring{};
  alignas(4096) std::array<std::byte, kStagingBytes> staging;
};

// Send and recv: the box in which a rank writes for one other rank (PairBox). After its page, every rank has one box
// for every rank. After the boxes lie the inputs that are stored next to calls: kInlineSlots times inline_bytes_for()
// bytes. Messages from A to B are numbered. A counts the announced messages in its box for B. B counts the taken
// messages in its box for A.
inline constexpr std::size_t kMessageSlots = 4;                // messages that may be announced and not yet taken
inline constexpr std::size_t kMessageInlineBytes = 1024;       // messages up to this size lie in the box
inline constexpr std::size_t kMessageChunkBytes = 128 * 1024;  // a chunk of a staged message
inline constexpr std::size_t kMessageChunks = 2;               // in the staging buffer: one is filled, one drained

enum class MessagePath : std::uint8_t { kInline, kDirect, kStaged };

struct MessageSlot {
  std::uint64_t count;
  DataType type;
  MessagePath path;
  Location data;  // where a direct message lies
  Tag tag;
};

struct PairBox {
  alignas(64) std::atomic<std::uint64_t> announced{0};  // messages announced to that rank
  std::atomic<std::uint64_t> filled{0};                 // chunks filled of all staged messages to that rank
  alignas(64) std::atomic<std::uint64_t> taken{0};      // messages taken from that rank
  std::atomic<std::uint64_t> drained{0};                // chunks drained of all staged messages from it
  alignas(64) Location staging{};                       // written before a message that needs it is announced
  std::array<MessageSlot, kMessageSlots> slots{};
  alignas(64) std::array<std::array<std::byte, kMessageInlineBytes>, kMessageSlots> inlined{};
};

static_assert(std::atomic<std::uint64_t>::is_always_lock_free, "a lock would not survive the death of its holder");

}  // namespace reigen::comm::shared_memory
