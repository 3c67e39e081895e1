#include "reigen/comm/process_set.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "comm/agree.h"
#include "reigen/base/error.h"

namespace reigen::comm {
namespace {

// The ranks of the set, as this rank gave them.
struct AskedRanks {
  std::vector<std::int32_t> place;  // place[q]: the index of rank q in the set; -1 if rank q is not in it
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

std::string describe(const AskedRanks& asked) {
  if (!asked.valid) return "numbers that are not ranks";
  std::vector<std::pair<std::int32_t, std::size_t>> ranks;
  for (std::size_t q = 0; q < asked.place.size(); ++q) {
    if (asked.place[q] >= 0) ranks.emplace_back(asked.place[q], q);
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
  const auto difference = find_difference({describe(asked)}, world, "process set");
  if (!asked.valid) {
    throw InvalidArgument(Report{.what = "[process_set] these are not ranks of the group",
                                 .got = fmt::format("{{{}}}", fmt::join(ranks, ", ")),
                                 .expected = fmt::format("one number or more from 0 to {}, each once", size - 1)});
  }
  if (difference) {
    throw InvalidArgument(
        Report{.what = fmt::format("[process_set] rank {} of {} gives other ranks", difference->rank, size),
               .got = fmt::format("rank {}: {}", difference->rank, difference->other),
               .expected = fmt::format("rank 0: {}", difference->first),
               .fix = "call it with the same numbers on every rank, members or not"});
  }
  const std::int32_t place = asked.place[static_cast<std::size_t>(world.rank())];
  return world.split(place < 0 ? -1 : 0, place);
}

}  // namespace reigen::comm
