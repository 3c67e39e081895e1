#include "schedule/edges.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

namespace reigen::schedule {
namespace {

void check_numbers(const Schedule& schedule) {
  const auto is_count = [](int number) { return number >= 1 && number <= kMostOfEach; };
  const std::string expected = fmt::format("1 to {}", kMostOfEach);
  if (!is_count(schedule.ranks)) {
    throw refused("the number of ranks is wrong", fmt::format("{}", schedule.ranks), expected);
  }
  if (!is_count(schedule.micro_batches)) {
    throw refused("the number of micro-batches is wrong", fmt::format("{}", schedule.micro_batches), expected);
  }
  if (schedule.placement.empty() || schedule.placement.size() > static_cast<std::size_t>(kMostOfEach)) {
    throw refused("the number of stages is wrong", fmt::format("{}", schedule.placement.size()), expected);
  }
  for (int stage = 0; stage < schedule.stages(); ++stage) {
    const int rank = schedule.placement[static_cast<std::size_t>(stage)];
    if (rank < 0 || rank >= schedule.ranks) {
      throw refused(fmt::format("stage {} is placed on a rank that does not exist", stage),
                    fmt::format("rank {}", rank), fmt::format("0 to {}", schedule.ranks - 1));
    }
  }
  if (schedule.actions.size() != static_cast<std::size_t>(schedule.ranks)) {
    throw refused("the number of lists is wrong", fmt::format("{}", schedule.actions.size()),
                  fmt::format("{}, one for each rank", schedule.ranks));
  }
}

void check_skips(const Schedule& schedule) {
  for (std::size_t i = 0; i < schedule.skips.size(); ++i) {
    const Skip& skip = schedule.skips[i];
    const std::string got = fmt::format("skip {} {}", skip.from, skip.to);
    if (skip.from < 0 || skip.to >= schedule.stages() || skip.to < skip.from + 2) {
      throw refused("a skip connection does not lead over a stage", got,
                    fmt::format("from a stage to the next but one or later, 0 to {}", schedule.stages() - 1),
                    "leave out a skip to the next stage: the stage's output goes there anyway");
    }
    if (std::find(schedule.skips.begin(), schedule.skips.end(), skip) - schedule.skips.begin() !=
        static_cast<std::ptrdiff_t>(i)) {
      throw refused("a skip connection comes twice", got, "each skip once");
    }
  }
}

void check_tied(const Schedule& schedule) {
  for (const std::vector<int>& group : schedule.tied) {
    const std::set<int> stages(group.begin(), group.end());
    const bool exist = !group.empty() && *stages.begin() >= 0 && *stages.rbegin() < schedule.stages();
    if (!exist || group.size() < 2 || stages.size() != group.size()) {
      throw refused("a group of tied stages is wrong", fmt::format("tied {}", fmt::join(group, " ")),
                    fmt::format("two or more different stages, 0 to {}", schedule.stages() - 1));
    }
  }
}

bool has(const std::vector<int>& stages, int stage) {
  return std::find(stages.begin(), stages.end(), stage) != stages.end();
}

// The peers that a message of this kind and stage may have.
const std::vector<int>& peers_of(const Edges& edges, const Action& message) {
  const bool is_to_target = message.kind == Kind::kSendForward || message.kind == Kind::kReceiveBackward;
  return (is_to_target ? edges.targets : edges.sources)[static_cast<std::size_t>(message.stage)];
}

void check_action(const Schedule& schedule, const Edges& edges, const Place& place) {
  const Action& action = action_at(schedule, place);
  const auto wrong = [&](const std::string& what, const std::string& got, const std::string& expected,
                         const std::string& fix = {}) {
    return refused(to_text(schedule, place) + what, got, expected, fix);
  };
  if (action.kind < Kind::kForward || action.kind > Kind::kReduceGrad) {
    throw wrong(" has an unknown kind", fmt::format("kind {}", static_cast<int>(action.kind)),
                "one of the kinds of schedule.h");
  }
  if (action.stage < 0 || action.stage >= schedule.stages()) {
    throw wrong(" is of a stage that does not exist", fmt::format("stage {}", action.stage),
                fmt::format("0 to {}", schedule.stages() - 1));
  }
  const int owner = schedule.placement[static_cast<std::size_t>(action.stage)];
  if (owner != place.rank) {
    throw wrong(" is on the wrong rank", fmt::format("rank {}", place.rank),
                fmt::format("rank {}, which holds stage {}", owner, action.stage));
  }
  if (is_compute(action.kind) || is_message(action.kind)) {
    if (action.micro_batch < 0 || action.micro_batch >= schedule.micro_batches) {
      throw wrong(" is of a micro-batch that does not exist", fmt::format("micro-batch {}", action.micro_batch),
                  fmt::format("0 to {}", schedule.micro_batches - 1));
    }
  } else if (action.micro_batch != kNone) {
    throw wrong(" has a micro-batch", fmt::format("micro-batch {}", action.micro_batch),
                fmt::format("none: {} concerns the whole stage", to_text(action.kind)));
  }
  if (!is_message(action.kind)) {
    if (action.peer != kNone) {
      throw wrong(" has a peer", fmt::format("stage {}", action.peer), "none: only messages have a peer");
    }
    return;
  }
  const std::vector<int>& peers = peers_of(edges, action);
  if (!has(peers, action.peer)) {
    throw wrong(" is a message that nobody needs", fmt::format("peer {}", action.peer),
                peers.empty() ? "no such message of this stage" : fmt::format("peer {}", fmt::join(peers, " or ")),
                "declare a skip connection, or remove the message");
  }
  if (schedule.placement[static_cast<std::size_t>(action.peer)] == owner) {
    throw wrong(" is a message to the same rank",
                fmt::format("stages {} and {} are both on rank {}", action.stage, action.peer, owner),
                "no message between two stages on one rank", "remove the message");
  }
}

void check_complete(const Schedule& schedule, const Places& places) {
  for (int stage = 0; stage < schedule.stages(); ++stage) {
    const int rank = schedule.placement[static_cast<std::size_t>(stage)];
    for (int micro_batch = 0; micro_batch < schedule.micro_batches; ++micro_batch) {
      const auto of = [&](Kind kind) { return Action{.kind = kind, .stage = stage, .micro_batch = micro_batch}; };
      const auto missing = [&](Kind kind, const std::string& expected) {
        return refused(fmt::format("rank {}: {} is missing", rank, to_text(of(kind))), "an incomplete list", expected);
      };
      if (!places.contains(of(Kind::kForward))) throw missing(Kind::kForward, "F once for each micro-batch");
      const bool whole = places.contains(of(Kind::kBackward));
      const auto input = places.find(of(Kind::kBackwardInput));
      const auto weight = places.find(of(Kind::kBackwardWeight));
      if (whole && (input != places.end() || weight != places.end())) {
        throw refused(to_text(schedule, (input != places.end() ? input : weight)->second) + " computes again what " +
                          to_text(of(Kind::kBackward)) + " computes",
                      "both", "either B, or I and W");
      }
      if (whole) continue;
      if (input == places.end() && weight == places.end()) throw missing(Kind::kBackward, "either B, or I and W, once");
      if (input == places.end()) throw missing(Kind::kBackwardInput, "I before W");
      if (weight == places.end()) throw missing(Kind::kBackwardWeight, "W after I");
    }
  }
}

}  // namespace

InvalidArgument refused(const std::string& what, const std::string& got, const std::string& expected,
                        const std::string& fix) {
  return InvalidArgument(Report{.what = "[schedule] " + what, .got = got, .expected = expected, .fix = fix});
}

const Action& action_at(const Schedule& schedule, const Place& place) {
  return schedule.actions[static_cast<std::size_t>(place.rank)][static_cast<std::size_t>(place.position)];
}

Place backward_at(const Places& places, int stage, int micro_batch) {
  const auto whole = places.find({.kind = Kind::kBackward, .stage = stage, .micro_batch = micro_batch});
  if (whole != places.end()) return whole->second;
  return places.at({.kind = Kind::kBackwardInput, .stage = stage, .micro_batch = micro_batch});
}

Place last_at(const Places& places, int stage, int micro_batch) {
  const auto whole = places.find({.kind = Kind::kBackward, .stage = stage, .micro_batch = micro_batch});
  if (whole != places.end()) return whole->second;
  return places.at({.kind = Kind::kBackwardWeight, .stage = stage, .micro_batch = micro_batch});
}

std::string to_text(const Schedule& schedule, const Place& place) {
  return fmt::format("rank {}, position {}: {}", place.rank, place.position, to_text(action_at(schedule, place)));
}

Edges edges_of(const Schedule& schedule) {
  check_numbers(schedule);
  check_skips(schedule);
  check_tied(schedule);
  const auto stages = static_cast<std::size_t>(schedule.stages());
  Edges edges{.sources = std::vector<std::vector<int>>(stages), .targets = std::vector<std::vector<int>>(stages)};
  const auto connect = [&](int from, int to) {
    edges.targets[static_cast<std::size_t>(from)].push_back(to);
    edges.sources[static_cast<std::size_t>(to)].push_back(from);
  };
  for (int stage = 1; stage < schedule.stages(); ++stage) connect(stage - 1, stage);
  for (const Skip& skip : schedule.skips) connect(skip.from, skip.to);
  return edges;
}

Places places_of(const Schedule& schedule, const Edges& edges) {
  Places places;
  std::size_t actions = 0;
  for (const auto& list : schedule.actions) actions += list.size();
  places.reserve(actions);
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    const auto& list = schedule.actions[static_cast<std::size_t>(rank)];
    for (int position = 0; position < static_cast<int>(list.size()); ++position) {
      const Place place{.rank = rank, .position = position};
      check_action(schedule, edges, place);
      const Action& action = action_at(schedule, place);
      if (action.kind == Kind::kUnshard || action.kind == Kind::kReshard) continue;
      const auto [first, is_new] = places.emplace(action, place);
      if (!is_new) {
        throw refused(to_text(schedule, place) + " comes twice",
                      fmt::format("also at position {}", first->second.position), "each action once");
      }
    }
  }
  check_complete(schedule, places);
  return places;
}

}  // namespace reigen::schedule
