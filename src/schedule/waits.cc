#include "schedule/waits.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"

namespace reigen::schedule {

InvalidArgument cycle_of(const Schedule& schedule, const std::vector<std::optional<Wait>>& waits) {
  const auto first = std::find_if(waits.begin(), waits.end(), [](const auto& wait) { return wait.has_value(); });
  REIGEN_ASSERT(first != waits.end(), "no rank waits");
  // Each rank waits for one other rank, so the path from any rank leads into a cycle.
  std::vector<int> path = {static_cast<int>(first - waits.begin())};
  for (;;) {
    const auto& wait = waits[static_cast<std::size_t>(path.back())];
    REIGEN_ASSERT(wait.has_value(), "rank {} waits for nothing", path.back());
    const auto seen = std::find(path.begin(), path.end(), wait->awaited.rank);
    if (seen != path.end()) {
      path.erase(path.begin(), seen);
      break;
    }
    path.push_back(wait->awaited.rank);
  }
  std::string got;
  for (const int rank : path) {
    const Wait& wait = *waits[static_cast<std::size_t>(rank)];
    const Wait& next = *waits[static_cast<std::size_t>(wait.awaited.rank)];
    got += fmt::format("{}{} waits for {} ({}), which comes after {}", got.empty() ? "" : "; ",
                       to_text(schedule, wait.blocked), to_text(action_at(schedule, wait.awaited)),
                       fmt::format("rank {}, position {}", wait.awaited.rank, wait.awaited.position),
                       to_text(action_at(schedule, next.blocked)));
  }
  return refused("the schedule cannot finish, because these actions wait for each other", got,
                 "an order of each list in which every action finds its data",
                 "move one of the actions that others wait for before the action that blocks its rank");
}

}  // namespace reigen::schedule
