// The page of shared memory through which a rank speaks to the others. Only its owner writes it, but for the bell.
//
// Progress is told by counters that only grow, never by locks: a rank that is killed leaves nothing locked. All
// accesses to counters are sequentially consistent, because a sleeper announces itself (sleepers) and looks again,
// while the others count and then look for sleepers: one of the two must see the other.
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

inline constexpr std::uint32_t kPageVersion = 11;
inline constexpr std::size_t kRingSlots = 64;   // operations that may be under way at once; more wait their turn
inline constexpr std::size_t kInlineSlots = 8;  // inputs that travel with calls; so few stay in the caches
inline constexpr std::size_t kTinyBytes = 16;   // inputs up to this size travel in the line that announces the call
inline constexpr std::size_t kStagingBytes =
    256 * 1024;  // stays in the second-level cache while it is copied and added
inline constexpr std::size_t kDeviceStagingBytes = std::size_t{8} << 20;  // a meeting costs as much as 30 MB there

// What a rank called, for the others to compare and to find its memory.
struct Descriptor {
  std::uint64_t count;        // uneven: of all blocks
  std::uint64_t counts_hash;  // uneven
  double factor;
  OperationKind kind;
  DataType type;
  ReduceOp op;
  Way way;  // as it was chosen: a fused call may turn out to need the staging area
  std::int32_t root;
  std::array<std::byte, kTinyBytes> tiny;
  bool writes_common;  // this rank's output is the memory of others as well
  Tag tag;
  Location input;   // of all_gather, and where others touch the caller's memory; else what an earlier call left
  Location output;  // the same
  std::array<std::uint64_t, kCountsShown> counts;
};

// What every call is compared by comes first, so that a tiny call without a tag costs the others one cache line.
struct alignas(64) Slot {
  std::atomic<std::uint64_t> posted{0};  // calls so far, once this one is announced
  Descriptor call;
};

static_assert(offsetof(Slot, call) + offsetof(Descriptor, tag) < 64, "what tells a tiny call is in one cache line");

enum class RankState : std::uint32_t { kAlive, kLeft, kAborted };

struct RankPage {
  std::uint32_t version = kPageVersion;
  Location staging_at = {};  // of a device's memory: written before the page is announced; else `staging` below
  alignas(64) std::atomic<std::uint64_t> posted{0};    // operations that are in the ring; told a moment after the slot
  alignas(64) std::atomic<std::uint64_t> arrived{0};   // rounds whose input lies in the staging area
  alignas(64) std::atomic<std::uint64_t> verified{0};  // operations whose descriptors this rank has compared
  std::atomic<std::uint64_t> finished{0};              // rounds of which this rank has done its part
  alignas(64) std::atomic<std::uint32_t> bell{0};      // futex: rung by others
  std::atomic<std::uint32_t> sleepers{0};
  alignas(64) std::atomic<std::uint64_t> heartbeat{0};
  std::atomic<RankState> state{RankState::kAlive};
  std::uint32_t cause_kind = 0;  // written before `state` becomes kAborted
  std::int32_t cause_rank = -1;
  char cause[2048] = {};
  alignas(64) std::array<Slot, kRingSlots> ring{};
  alignas(4096) std::array<std::byte, kStagingBytes> staging;
};

// What a rank tells one other rank; behind its page there is one for every rank, and behind these lie the inputs that
// travel with calls: kInlineSlots times inline_bytes_for().
// Messages from A to B are numbered: A counts them in its box for B, B those that it has taken in its box for A.
inline constexpr std::size_t kMessageSlots = 4;                // messages that may be announced and not yet taken
inline constexpr std::size_t kMessageInlineBytes = 1024;       // up to this size they lie in the box
inline constexpr std::size_t kMessageChunkBytes = 128 * 1024;  // of one that passes through the staging area
inline constexpr std::size_t kMessageChunks = 2;               // in the staging area: one is filled, one drained

enum class MessagePath : std::uint8_t { kInline, kDirect, kStaged };

struct MessageSlot {
  std::uint64_t count;
  DataType type;
  MessagePath path;
  Location data;  // of a direct one
  Tag tag;
};

struct PairBox {
  alignas(64) std::atomic<std::uint64_t> announced{0};  // messages to that rank
  std::atomic<std::uint64_t> filled{0};                 // chunks of all staged ones to it
  alignas(64) std::atomic<std::uint64_t> taken{0};      // messages from that rank
  std::atomic<std::uint64_t> drained{0};                // chunks of all staged ones from it
  alignas(64) Location staging{};                       // written before the first message that needs it is announced
  std::array<MessageSlot, kMessageSlots> slots{};
  alignas(64) std::array<std::array<std::byte, kMessageInlineBytes>, kMessageSlots> inlined{};
};

static_assert(std::atomic<std::uint64_t>::is_always_lock_free, "a lock would not survive the death of its holder");

}  // namespace reigen::comm::shared_memory
