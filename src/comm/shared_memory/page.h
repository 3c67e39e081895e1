// The page of a rank (RankPage): the shared memory through which the rank communicates with the other ranks of its
// machine. Only the rank itself writes to its page. The exception is `bell`, which the other ranks increment to wake
// the rank.
//
// Ranks report progress by counters that only grow, never by locks. So a rank that is killed leaves nothing locked. A
// rank may sleep until a counter has grown. Such counters are stored and loaded with sequential consistency. A thread
// that is about to sleep first increments `sleepers` of its rank and then reads the counters again. A rank that makes
// progress first stores its counter and then reads `sleepers` of the other ranks. So at least one of the two sees the
// store of the other, and no sleeper misses its wake-up.
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
// A page has this many slots for calls. A slot is free again when all ranks have verified its call.
inline constexpr std::size_t kRingSlots = 64;
inline constexpr std::size_t kInlineSlots = 8;  // inputs stored next to calls; few, so that they remain in the caches
inline constexpr std::size_t kTinyBytes = 16;   // inputs up to this size lie in the first cache line of the call's slot
inline constexpr std::size_t kStagingBytes =
    256 * 1024;  // data of this size remain in the second-level cache while they are copied and added
// Large, because one wait of all ranks for each other takes as long as moving 30 MB in device memory.
inline constexpr std::size_t kDeviceStagingBytes = std::size_t{8} << 20;

// Describes a call of one rank. The other ranks compare it with their own call, and find in it the locations of the
// rank's buffers.
struct Descriptor {
  std::uint64_t count;        // elements of one block, or of all blocks if blocks differ in size; 0 for all_to_all_v
  std::uint64_t counts_hash;  // hash of the block sizes if blocks differ in size; 0 otherwise and for all_to_all_v
  double factor;
  OperationKind kind;
  DataType type;
  ReduceOp op;
  Way way;  // as chosen when the call was made; plan_rounds() may still run a fused call as two_shot
  std::int32_t root;
  std::array<std::byte, kTinyBytes> tiny;
  bool writes_common;  // the output lies in common memory (allocate_shared), which all ranks map
  Tag tag;
  Location input;   // set by fused and two_shot calls and by every all_gather; other calls leave the old value
  Location output;  // set by the same calls as `input`
  std::array<std::uint64_t, kCountsShown> counts;
};

// The fields that ranks compare in every call come first in a slot. So for a call without a tag whose input has at most
// kTinyBytes, the other ranks read only one cache line.
struct alignas(64) Slot {
  std::atomic<std::uint64_t> posted{0};  // the number of this call plus 1; stored when the descriptor is complete
  Descriptor call;
};

static_assert(offsetof(Slot, call) + offsetof(Descriptor, tag) < 64, "what tells a tiny call is in one cache line");

enum class RankState : std::uint32_t { kAlive, kLeft, kAborted };

// The counters are never reset: they count over all calls of the group. A call runs in one or more rounds. A two_shot
// call has one round for each chunk of its data (collectives.h).
struct RankPage {
  std::uint32_t version = kPageVersion;
  // For a group on device memory: the location of this rank's staging buffer, set before other ranks can find the page.
  // A group on host memory uses `staging` below.
  Location staging_at = {};
  alignas(64) std::atomic<std::uint64_t> posted{0};    // calls posted (made visible); stored after the slot's `posted`
  std::atomic<std::uint64_t> order{0};                 // number of the last call; both lanes (group.h) count together
  alignas(64) std::atomic<std::uint64_t> arrived{0};   // rounds whose input this rank has copied to its staging buffer
  alignas(64) std::atomic<std::uint64_t> verified{0};  // calls whose descriptors this rank has compared
  std::atomic<std::uint64_t> finished{0};              // rounds in which this rank has done its work
  alignas(64) std::atomic<std::uint32_t> bell{0};      // futex word; an increment wakes this rank
  std::atomic<std::uint32_t> sleepers{0};
  alignas(64) std::atomic<std::uint64_t> heartbeat{0};
  std::atomic<RankState> state{RankState::kAlive};
  std::uint32_t cause_kind = 0;  // the three fields of the cause are written before `state` becomes kAborted
  std::int32_t cause_rank = -1;
  char cause[2048] = {};
  alignas(64) std::array<Slot, kRingSlots> ring{};
  alignas(4096) std::array<std::byte, kStagingBytes> staging;
};

// For send and recv, every rank has one PairBox for each rank, in shared memory just after its page. Only the rank
// itself writes to its boxes. After the boxes lie kInlineSlots buffers of inline_bytes_for() bytes, for inputs that are
// stored next to calls. The messages from rank A to rank B are numbered. In its box for B, rank A counts the messages
// that it has announced to B. In its box for A, rank B counts the messages that it has taken from A.
inline constexpr std::size_t kMessageSlots = 4;                // messages that may be announced and not yet taken
inline constexpr std::size_t kMessageInlineBytes = 1024;       // messages up to this size lie in the box itself
inline constexpr std::size_t kMessageChunkBytes = 128 * 1024;  // the size of a chunk of a staged message
// A staging buffer has this many chunks. The sender fills one chunk while the receiver drains the other.
inline constexpr std::size_t kMessageChunks = 2;

enum class MessagePath : std::uint8_t { kInline, kDirect, kStaged };

struct MessageSlot {
  std::uint64_t count;
  DataType type;
  MessagePath path;
  Location data;  // where the data of a direct message lie
  Tag tag;
};

struct PairBox {
  alignas(64) std::atomic<std::uint64_t> announced{0};  // messages announced to the other rank
  std::atomic<std::uint64_t> filled{0};                 // chunks filled, of all staged messages to the other rank
  alignas(64) std::atomic<std::uint64_t> taken{0};      // messages taken from the other rank
  std::atomic<std::uint64_t> drained{0};                // chunks drained, of all staged messages from the other rank
  alignas(64) Location staging{};                       // set before a message that needs a staging buffer is announced
  std::array<MessageSlot, kMessageSlots> slots{};
  alignas(64) std::array<std::array<std::byte, kMessageInlineBytes>, kMessageSlots> inlined{};
};

static_assert(std::atomic<std::uint64_t>::is_always_lock_free, "a lock would not survive the death of its holder");

}  // namespace reigen::comm::shared_memory
