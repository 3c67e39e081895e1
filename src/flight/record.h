// The flight record of one rank as it lies in memory: what it was, and the last operations it called. The rank writes;
// others map it read-only, while it runs, hangs or is dead.
//
// An entry is one call. Its `version` is 2·ticket + 1 while it is being written and 2·ticket + 2 when it is whole; the
// n-th call of a rank has ticket n and lies in entry n mod kEntries. A reader takes an entry whose version is even and
// the same before and after. Two words change later, each by itself: `started` and `ended`. A thread that was slow may
// write them into an entry that has been given away meanwhile; such a stamp is older than the call, and readers drop
// it.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace reigen::flight {

inline constexpr std::uint64_t kMagic = 0x5448474c46475201;  // changes with the layout
inline constexpr std::size_t kEntries = 1024;
inline constexpr std::size_t kGroups = 128;
inline constexpr std::size_t kTextWords = 6;  // 47 characters and their end
inline constexpr std::size_t kNameBytes = 24;
inline constexpr const char* kMemoryName = "reigen-flight";  // memfd:reigen-flight in /proc/PID/fd

using Word = std::atomic<std::uint64_t>;
using Text = std::array<Word, kTextWords>;
using Names = std::array<std::array<char, kNameBytes>, 32>;

// One cache line, and a second one for those that have a tag. Times are ticks of the header's clock.
struct alignas(64) Entry {
  Word version;
  Word called;
  Word started;  // 0: not yet
  Word ended;    // 0: not yet; the lowest three bits are the Outcome
  Word sequence;
  Word count;
  Word bytes;
  Word what;  // kind, type, reduction, group (a byte each), root (32 bits); see pack()
  Text tag;
  std::array<Word, 2> unused;
};
static_assert(sizeof(Entry) == 128);

// A group that this rank is in. With more groups than places the oldest lose theirs.
struct alignas(64) GroupEntry {
  Word version;       // odd while it is written, as above
  Word since;         // ticket of the rank's first call that may be meant by this place
  Word rank_of_size;  // rank in the group · 2^32 + size
  Text name;
};

struct Header {
  std::uint64_t magic;  // written by who made the memory, as are these:
  std::int32_t rank;    // in the job
  std::int32_t size;
  std::uint64_t job;  // hash of the job's identity
  // By the rank itself, before `attached`.
  std::atomic<std::uint32_t> attached;
  std::int32_t pid;
  std::array<char, 64> host;
  std::uint32_t counter;  // 1: times are of the processor's counter, else CLOCK_MONOTONIC in ns
  std::uint64_t base_ticks;
  std::int64_t base_time;  // CLOCK_REALTIME at base_ticks, ns
  Names kinds;             // names of the codes in Entry::what
  Names types;
  Names reductions;
  alignas(64) Word next;  // about the next ticket
  Word groups_made;
};

struct Record {
  Header header;
  std::array<GroupEntry, kGroups> groups;
  std::array<Entry, kEntries> entries;
};

inline constexpr std::size_t kRecordBytes = (sizeof(Record) + 4095) / 4096 * 4096;

// How an operation ended. kRunning: it has not.
enum class Outcome : std::uint8_t { kRunning, kDone, kFailed, kMismatch, kPeerLost, kTimeout, kAborted };

inline constexpr std::uint8_t kNoCode = 0xff;
inline constexpr std::int32_t kNoRoot = -1;

// kind, type, reduction, group: 0xff where there is none; bit 31 of the root: an operation between two ranks.
struct What {
  std::uint8_t kind = kNoCode;
  std::uint8_t type = kNoCode;
  std::uint8_t reduction = kNoCode;
  std::uint8_t group = 0;
  std::int32_t root = kNoRoot;  // of an operation between two ranks: the other one
  bool has_tag = false;
  bool between_two = false;
};

std::uint64_t pack(const What& what);
What unpack(std::uint64_t word);

}  // namespace reigen::flight
