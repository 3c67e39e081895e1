#include "reigen/comm/process_set.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "reigen/base/error.h"

namespace reigen::comm {
namespace {

// What a rank asked for, in as many numbers on every rank.
struct AskedRanks {
  std::vector<std::int32_t> place;  // of every rank in the set; -1: not in it
  bool valid = true;
};

AskedRanks read_asked(const std::vector<int>& ranks, int size) {
  AskedRanks result{.place = std::vector<std::int32_t>(static_cast<std::size_t>(size), -1), .valid = !ranks.empty()};
  for (std::size_t i = 0; i < ranks.size() && result.valid; ++i) {
    result.valid = ranks[i] >= 0 && ranks[i] < size && result.place[static_cast<std::size_t>(ranks[i])] < 0;
    if (result.valid) result.place[static_cast<std::size_t>(ranks[i])] = static_cast<std::int32_t>(i);
  }
  return result;
}

std::string describe_places(const std::int32_t* places, std::size_t size) {
  std::vector<std::pair<std::int32_t, std::size_t>> ranks;
  for (std::size_t q = 0; q < size; ++q) {
    if (places[q] >= 0) ranks.emplace_back(places[q], q);
  }
  std::sort(ranks.begin(), ranks.end());
  std::string text;
  for (const auto& [place, rank] : ranks) text += fmt::format("{}{}", text.empty() ? "" : ", ", rank);
  return "{" + text + "}";
}

}  // namespace

std::optional<Communicator> process_set(Communicator world, const std::vector<int>& ranks) {
  const auto size = static_cast<std::size_t>(world.size());
  const AskedRanks asked = read_asked(ranks, world.size());
  std::vector<std::int32_t> mine = asked.place;
  mine.push_back(asked.valid ? 1 : 0);
  std::vector<std::int32_t> all(mine.size() * size);
  world.all_gather(mine.data(), all.data(), mine.size(), DataType::kInt32, {.tag = "process set"});
  if (!asked.valid) {
    throw InvalidArgument(Report{.what = "[process_set] these are not ranks of the group",
                                 .got = fmt::format("{{{}}}", fmt::join(ranks, ", ")),
                                 .expected = fmt::format("one number or more from 0 to {}, each once", size - 1)});
  }
  for (std::size_t q = 0; q < size; ++q) {
    const std::int32_t* theirs = all.data() + q * mine.size();
    if (std::equal(mine.begin(), mine.end(), theirs)) continue;
    const std::string what = theirs[size] != 0 ? describe_places(theirs, size) : "numbers that are not ranks";
    throw InvalidArgument(
        Report{.what = fmt::format("[process_set] rank {} of {} gives other ranks", q, size),
               .got = fmt::format("rank {}: {}", q, what),
               .expected = fmt::format("rank {}: {}", world.rank(), describe_places(mine.data(), size)),
               .fix = "call it with the same numbers on every rank, members or not"});
  }
  const std::int32_t place = asked.place[static_cast<std::size_t>(world.rank())];
  return world.split(place < 0 ? -1 : 0, place);
}

}  // namespace reigen::comm
