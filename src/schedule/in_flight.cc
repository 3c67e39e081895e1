#include "schedule/in_flight.h"

#include <fmt/format.h>

#include <algorithm>

namespace reigen::schedule {
namespace {

void check_limit(const Schedule& schedule, const Place& place, const char* of, int count, int limit) {
  if (limit == 0 || count <= limit) return;
  throw refused(fmt::format("{} holds too many activations of its {}", to_text(schedule, place), of),
                fmt::format("{} in flight", count), fmt::format("at most {}", limit),
                "choose a schedule that holds fewer, or raise the limit");
}

}  // namespace

InFlight in_flight_of(const Schedule& schedule, const ValidateOptions& options) {
  std::vector<int> now(schedule.placement.size());
  InFlight most{.by_stage = now, .by_rank = std::vector<int>(static_cast<std::size_t>(schedule.ranks))};
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    int on_rank = 0;
    const auto& list = schedule.actions[static_cast<std::size_t>(rank)];
    for (int position = 0; position < static_cast<int>(list.size()); ++position) {
      const Action& action = list[static_cast<std::size_t>(position)];
      const auto stage = static_cast<std::size_t>(action.stage);
      if (action.kind == Kind::kForward) {
        ++now[stage];
        ++on_rank;
        most.by_stage[stage] = std::max(most.by_stage[stage], now[stage]);
        most.by_rank[static_cast<std::size_t>(rank)] = std::max(most.by_rank[static_cast<std::size_t>(rank)], on_rank);
        check_limit(schedule, {rank, position}, "stage", now[stage], options.most_by_stage);
        check_limit(schedule, {rank, position}, "rank", on_rank, options.most_by_rank);
      } else if (action.kind == Kind::kBackward || action.kind == Kind::kBackwardWeight) {
        --now[stage];
        --on_rank;
      }
    }
  }
  return most;
}

}  // namespace reigen::schedule
