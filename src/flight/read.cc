#include "flight/read.h"

#include <time.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

#include "flight/clock.h"
#include "reigen/base/error.h"

namespace reigen::flight {

namespace {

constexpr int kTries = 100;  // a writer needs tens of ns; the reader does not wait for a writer that was stopped

std::uint64_t get(const Word& word) { return word.load(std::memory_order_acquire); }

std::string get(const Text& text) {
  std::array<char, sizeof(std::uint64_t) * kTextWords + 1> bytes{};
  for (std::size_t i = 0; i < kTextWords; ++i) {
    const std::uint64_t word = get(text[i]);
    std::memcpy(bytes.data() + i * sizeof word, &word, sizeof word);
  }
  return bytes.data();
}

std::string name_of(const Names& names, std::uint8_t code) {
  if (code == kNoCode) return {};
  if (code >= names.size()) return "?";
  const auto& name = names[code];
  return {name.data(), static_cast<std::size_t>(std::find(name.begin(), name.end(), '\0') - name.begin())};
}

// Converts ticks to the time of day. It interpolates between two pairs of ticks and time, one in the record and one
// read now, so that the speed of the counter need not be known.
class Times {
 public:
  explicit Times(const Header& header)
      : base_ticks_(header.base_ticks),
        base_time_(header.base_time),
        now_ticks_(header.counter != 0 ? read_counter()
                                       : static_cast<std::uint64_t>(system_nanoseconds(CLOCK_MONOTONIC))),
        now_time_(system_nanoseconds(CLOCK_REALTIME)) {}

  std::int64_t operator()(std::uint64_t ticks) const {
    if (now_ticks_ <= base_ticks_) return base_time_;
    const auto share = static_cast<long double>(static_cast<std::int64_t>(ticks - base_ticks_)) /
                       static_cast<long double>(now_ticks_ - base_ticks_);
    return base_time_ + static_cast<std::int64_t>(share * static_cast<long double>(now_time_ - base_time_));
  }

 private:
  std::uint64_t base_ticks_;
  std::int64_t base_time_;
  std::uint64_t now_ticks_;
  std::int64_t now_time_;
};

struct Place {
  std::uint64_t number = 0;
  std::uint64_t since = 0;
  ReadGroup group;
};

// Calls `read` until the version is even, and the same before and after the call. Returns false if no attempt of kTries
// attempts succeeds, or if the entry is unused.
template <typename Read>
bool read_whole(const Word& version, Read read, std::uint64_t& ticket) {
  for (int i = 0; i < kTries; ++i) {
    const std::uint64_t before = version.load(std::memory_order_acquire);
    if (before == 0) return false;
    if (before % 2 != 0) continue;
    read();
    if (version.load(std::memory_order_relaxed) != before) continue;
    ticket = before / 2 - 1;
    return true;
  }
  return false;
}

std::vector<std::optional<Place>> read_groups(const Record& record) {
  std::vector<std::optional<Place>> places(kGroups);
  for (std::size_t i = 0; i < kGroups; ++i) {
    const GroupEntry& entry = record.groups[i];
    Place place;
    const auto read = [&] {
      place.since = get(entry.since);
      const std::uint64_t packed = get(entry.rank_of_size);
      place.group = {get(entry.name), static_cast<int>(packed >> 32), static_cast<int>(packed & 0xffffffff)};
    };
    if (read_whole(entry.version, read, place.number)) places[i] = place;
  }
  return places;
}

struct Raw {
  std::uint64_t called, started, ended, what;
};

void take_outcome(ReadOperation& operation, const Raw& raw, const Times& times) {
  operation.called = times(raw.called);
  if (raw.started >= raw.called) operation.started = times(raw.started);
  const std::uint64_t ended = raw.ended & ~std::uint64_t{7};
  if (raw.ended == 0 || ended < (raw.called & ~std::uint64_t{7})) return;
  operation.ended = std::max(times(ended), operation.called);
  operation.outcome = static_cast<Outcome>(raw.ended & 7);
}

void name_groups(ReadRank& rank, const std::vector<std::uint8_t>& codes,
                 const std::vector<std::optional<Place>>& places) {
  for (std::size_t i = 0; i < codes.size(); ++i) {
    ReadOperation& operation = rank.operations[i];
    const std::optional<Place> place = codes[i] < kGroups ? places[codes[i]] : std::nullopt;
    if (!place || operation.ticket < place->since) continue;
    operation.group = place->group.name;
    operation.group_rank = place->group.rank;
    operation.group_size = place->group.size;
  }
  std::vector<Place> groups;
  for (const auto& place : places) {
    if (place) groups.push_back(*place);
  }
  std::sort(groups.begin(), groups.end(), [](const Place& a, const Place& b) { return a.number < b.number; });
  for (const Place& place : groups) rank.groups.push_back(place.group);
}

}  // namespace

ReadRank read_record(const Record& record) {
  const Header& header = record.header;
  if (header.magic != kMagic) {
    throw DataError(Report{.what = "a flight record of another version of Reigen",
                           .fix = "read it with the `reigen` that belongs to the program"});
  }
  ReadRank rank{.rank = header.rank, .size = header.size, .job = header.job};
  if (header.attached.load(std::memory_order_acquire) == 0) return rank;
  rank.pid = header.pid;
  rank.host = header.host.data();
  const Times times(header);
  std::vector<std::uint8_t> codes;  // for each operation the index of its group in Record::groups
  for (const Entry& entry : record.entries) {
    ReadOperation operation;
    Raw raw{};
    const auto read = [&] {
      raw = {get(entry.called), get(entry.started), get(entry.ended), get(entry.what)};
      operation.sequence = get(entry.sequence);
      operation.count = get(entry.count);
      operation.bytes = get(entry.bytes);
      operation.tag = unpack(raw.what).has_tag ? get(entry.tag) : std::string();
    };
    if (!read_whole(entry.version, read, operation.ticket)) continue;
    const What what = unpack(raw.what);
    operation.kind = name_of(header.kinds, what.kind);
    operation.type = name_of(header.types, what.type);
    operation.reduction = name_of(header.reductions, what.reduction);
    operation.root = what.root;
    operation.between_two = what.between_two;
    take_outcome(operation, raw, times);
    rank.operations.push_back(std::move(operation));
    codes.push_back(what.group);
  }
  // Groups are read after the operations. A group is recorded before its first call, so every call finds its group.
  name_groups(rank, codes, read_groups(record));
  std::sort(rank.operations.begin(), rank.operations.end(),
            [](const ReadOperation& a, const ReadOperation& b) { return a.ticket < b.ticket; });
  return rank;
}

std::int64_t time_now() { return system_nanoseconds(CLOCK_REALTIME); }

}  // namespace reigen::flight
