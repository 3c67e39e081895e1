// The layout in memory of one rank's flight record: its identity, and the last operations that it called. The rank
// writes the record. Other processes map it read-only, while the rank runs, while it hangs, or after its death.
//
// An entry is one call. The n-th call of a rank has ticket n and lies in entry n mod kEntries. The entry's `version` is
// 2·ticket + 1 while it is being written, and 2·ticket + 2 when it is whole. A reader accepts an entry whose version is
// even and the same before and after reading. When an entry is whole, only its words `started` and `ended` still
// change, each with one atomic store. A slow thread may write such a word after a later call has taken the entry. The
// time in this word is older than the `called` of the later call, so readers ignore it.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace reigen::flight {

inline constexpr std::uint64_t kMagic = 0x5448474c46475201;  // every change of the layout gets a new number
inline constexpr std::size_t kEntries = 1024;
inline constexpr std::size_t kGroups = 128;
inline constexpr std::size_t kTextWords = 6;  // 47 characters and a final zero
inline constexpr std::size_t kNameBytes = 24;
inline constexpr const char* kMemoryName = "reigen-flight";  // memfd:reigen-flight in /proc/PID/fd

using Word = std::atomic<std::uint64_t>;
using Text = std::array<Word, kTextWords>;
using Names = std::array<std::array<char, kNameBytes>, 32>;

// A call without a tag uses one cache line, a call with a tag two. Times are ticks of the clock that Header::counter
// names.
struct alignas(64) Entry {
  Word version;
  Word called;
  Word started;  // 0 until the call has started
  Word ended;    // 0 until the call has ended; the lowest three bits are the Outcome
  Word sequence;
  Word count;
  Word bytes;
  Word what;  // kind, type, reduction, group (a byte each), root (30 bits), two flags; see pack()
  Text tag;
  std::array<Word, 2> unused;
};
static_assert(sizeof(Entry) == 128);

// A group of this rank. If there are more than kGroups groups, the newest ones replace the oldest.
struct alignas(64) GroupEntry {
  Word version;       // odd while the entry is written, as in Entry
  Word since;         // first ticket of this group; earlier calls belong to a group that had this entry before
  Word rank_of_size;  // (this rank's number in the group) · 2^32 + (size of the group)
  Text name;
};

struct Header {
  // Written by the process that made the memory:
  std::uint64_t magic;
  std::int32_t rank;  // in the job
  std::int32_t size;
  std::uint64_t job;  // hash of the job's identity
  // Written by the rank itself, which sets `attached` last:
  std::atomic<std::uint32_t> attached;
  std::int32_t pid;
  std::array<char, 64> host;
  std::uint32_t counter;  // 1 if times are ticks of the processor's counter; 0 if they are CLOCK_MONOTONIC in ns
  std::uint64_t base_ticks;
  std::int64_t base_time;  // CLOCK_REALTIME at base_ticks, ns
  Names kinds;             // names of the codes in Entry::what
  Names types;
  Names reductions;
  alignas(64) Word next;  // the next ticket, approximately
  Word groups_made;
};

struct Record {
  Header header;
  std::array<GroupEntry, kGroups> groups;
  std::array<Entry, kEntries> entries;
};

inline constexpr std::size_t kRecordBytes = (sizeof(Record) + 4095) / 4096 * 4096;

// How an operation ended. kRunning means that it has not ended.
enum class Outcome : std::uint8_t { kRunning, kDone, kFailed, kMismatch, kPeerLost, kTimeout, kAborted };

inline constexpr std::uint8_t kNoCode = 0xff;
inline constexpr std::int32_t kNoRoot = -1;

// The contents of Entry::what. Kind, type, reduction and group are kNoCode if the call has none.
struct What {
  std::uint8_t kind = kNoCode;
  std::uint8_t type = kNoCode;
  std::uint8_t reduction = kNoCode;
  std::uint8_t group = 0;
  std::int32_t root = kNoRoot;  // for an operation between two ranks: the other rank
  bool has_tag = false;
  bool between_two = false;
};

std::uint64_t pack(const What& what);
What unpack(std::uint64_t word);

}  // namespace reigen::flight
