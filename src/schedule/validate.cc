#include "reigen/schedule/validate.h"

#include <fmt/format.h>

#include <optional>

#include "schedule/in_flight.h"
#include "schedule/links.h"
#include "schedule/waits.h"

namespace reigen::schedule {
namespace {

// Throws if ranks wait for each other. All other needs of an action are earlier in its own list, so a rank can wait
// only in a receive.
void check_finishes(const Schedule& schedule, const Links& links) {
  std::vector<int> done(static_cast<std::size_t>(schedule.ranks));  // the number of actions that each rank has done
  const auto waits_at = [&](int rank) -> std::optional<Wait> {
    const auto r = static_cast<std::size_t>(rank);
    if (done[r] == static_cast<int>(schedule.actions[r].size())) return std::nullopt;
    return Wait{.blocked = {rank, done[r]}, .awaited = links.partners[r][static_cast<std::size_t>(done[r])]};
  };
  for (bool progress = true; progress;) {
    progress = false;
    for (int rank = 0; rank < schedule.ranks; ++rank) {
      for (auto next = waits_at(rank); next; next = waits_at(rank)) {
        const bool receives = is_receive(action_at(schedule, next->blocked).kind);
        if (receives && done[static_cast<std::size_t>(next->awaited.rank)] <= next->awaited.position) break;
        ++done[static_cast<std::size_t>(rank)];
        progress = true;
      }
    }
  }
  std::vector<std::optional<Wait>> waits;
  bool finished = true;
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    waits.push_back(waits_at(rank));
    finished = finished && !waits.back();
  }
  if (!finished) throw cycle_of(schedule, waits);
}

// The weights of one stage while its rank goes through its list.
struct Weights {
  bool sharded = false;  // the list has an UNSHARD of this stage
  bool whole = true;
  int backwards = 0;  // B and W that are left
};

void check_weights_at(const Schedule& schedule, const Place& place, Weights& weights) {
  const Action& action = action_at(schedule, place);
  const auto wrong = [&](const std::string& what, const std::string& got, const std::string& expected) {
    return refused(to_text(schedule, place) + what, got, expected);
  };
  switch (action.kind) {
    case Kind::kUnshard:
      if (weights.whole) throw wrong(" gathers weights that are whole", "two in turn", "RESHARD before it");
      weights.whole = true;
      break;
    case Kind::kReshard:
      if (!weights.sharded) throw wrong(" frees weights that are not sharded", "no UNSHARD", "UNSHARD before it");
      if (!weights.whole) throw wrong(" frees weights that are not whole", "no UNSHARD", "UNSHARD before it");
      weights.whole = false;
      break;
    case Kind::kReduceGrad:
      if (weights.backwards > 0) {
        throw wrong(" comes too early", fmt::format("{} backwards of the stage come later", weights.backwards),
                    "REDUCE_GRAD after the last backward of its stage");
      }
      break;
    default:
      if (!is_compute(action.kind)) break;
      if (!weights.whole) {
        throw wrong(" computes with weights that are not whole", "no UNSHARD",
                    fmt::format("UNSHARD{} before it", action.stage));
      }
      if (action.kind == Kind::kBackward || action.kind == Kind::kBackwardWeight) --weights.backwards;
  }
}

void check_weights(const Schedule& schedule) {
  std::vector<Weights> weights(schedule.placement.size(), {.backwards = schedule.micro_batches});
  for (const auto& list : schedule.actions) {
    for (const Action& action : list) {
      if (action.kind == Kind::kUnshard) weights[static_cast<std::size_t>(action.stage)].sharded = true;
    }
  }
  for (Weights& stage : weights) stage.whole = !stage.sharded;
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    const auto& list = schedule.actions[static_cast<std::size_t>(rank)];
    for (int position = 0; position < static_cast<int>(list.size()); ++position) {
      const auto stage = static_cast<std::size_t>(list[static_cast<std::size_t>(position)].stage);
      check_weights_at(schedule, {rank, position}, weights[stage]);
    }
  }
}

}  // namespace

Links checked_links_of(const Schedule& schedule) {
  const Edges edges = edges_of(schedule);
  Links links = links_of(schedule, edges, places_of(schedule, edges));
  check_weights(schedule);
  check_finishes(schedule, links);
  return links;
}

InFlight validate(const Schedule& schedule, const ValidateOptions& options) {
  checked_links_of(schedule);
  return in_flight_of(schedule, options);
}

}  // namespace reigen::schedule
