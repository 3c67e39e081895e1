#include "schedule/links.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

namespace reigen::schedule {
namespace {

struct Lookup {
  const Schedule& schedule;
  const Edges& edges;
  const Places& places;

  int rank_of(int stage) const { return schedule.placement[static_cast<std::size_t>(stage)]; }
};

// The action of `action`'s rank that gives it the output of stage `source` (forward) or the gradient from `target`.
Action output_of(const Lookup& in, const Action& action, int source) {
  const bool is_local = in.rank_of(source) == in.rank_of(action.stage);
  if (is_local) return {.kind = Kind::kForward, .stage = source, .micro_batch = action.micro_batch};
  return {.kind = Kind::kReceiveForward, .stage = action.stage, .micro_batch = action.micro_batch, .peer = source};
}

Action gradient_of(const Lookup& in, const Action& action, int target) {
  const bool is_local = in.rank_of(target) == in.rank_of(action.stage);
  if (is_local) return action_at(in.schedule, backward_at(in.places, target, action.micro_batch));
  return {.kind = Kind::kReceiveBackward, .stage = action.stage, .micro_batch = action.micro_batch, .peer = target};
}

// The actions of the same rank that must come before this action.
std::vector<Action> needs_of(const Lookup& in, const Action& action) {
  const auto stage = static_cast<std::size_t>(action.stage);
  const auto own = [&](Kind kind) {
    return Action{.kind = kind, .stage = action.stage, .micro_batch = action.micro_batch};
  };
  std::vector<Action> needs;
  switch (action.kind) {
    case Kind::kForward:
      for (const int source : in.edges.sources[stage]) needs.push_back(output_of(in, action, source));
      break;
    case Kind::kBackward:
    case Kind::kBackwardInput:
      needs.push_back(own(Kind::kForward));
      for (const int target : in.edges.targets[stage]) needs.push_back(gradient_of(in, action, target));
      break;
    case Kind::kBackwardWeight: needs.push_back(own(Kind::kBackwardInput)); break;
    case Kind::kSendForward: needs.push_back(own(Kind::kForward)); break;
    case Kind::kSendBackward:
      needs.push_back(action_at(in.schedule, backward_at(in.places, action.stage, action.micro_batch)));
      break;
    default: break;
  }
  return needs;
}

std::vector<int> positions_of(const Lookup& in, const Place& place) {
  std::vector<int> positions;
  for (const Action& need : needs_of(in, action_at(in.schedule, place))) {
    const auto found = in.places.find(need);
    if (found == in.places.end()) {
      throw refused(to_text(in.schedule, place) + " lacks a message",
                    fmt::format("rank {} has no {}", place.rank, to_text(need)),
                    fmt::format("{} before {}", to_text(need), to_text(action_at(in.schedule, place))),
                    fmt::format("insert {}, or call add_messages()", to_text(need)));
    }
    if (found->second.position > place.position) {
      throw refused(to_text(in.schedule, place) + " comes too early",
                    fmt::format("{} comes at position {}", to_text(need), found->second.position),
                    fmt::format("{} before {}", to_text(need), to_text(action_at(in.schedule, place))));
    }
    positions.push_back(found->second.position);
  }
  return positions;
}

// The sends from one rank to another, and the receives there, each in the order of its list.
struct Pair {
  std::vector<Place> sends;
  std::vector<Place> receives;
};

std::map<std::pair<int, int>, Pair> pairs_of(const Lookup& in) {
  std::map<std::pair<int, int>, Pair> pairs;
  for (int rank = 0; rank < in.schedule.ranks; ++rank) {
    const auto& list = in.schedule.actions[static_cast<std::size_t>(rank)];
    for (int position = 0; position < static_cast<int>(list.size()); ++position) {
      const Action& action = list[static_cast<std::size_t>(position)];
      if (is_send(action.kind)) pairs[{rank, in.rank_of(action.peer)}].sends.push_back({rank, position});
      if (is_receive(action.kind)) pairs[{in.rank_of(action.peer), rank}].receives.push_back({rank, position});
    }
  }
  return pairs;
}

void check_has_counterpart(const Lookup& in, const Place& place) {
  const Action& action = action_at(in.schedule, place);
  const Action other = counterpart(action);
  if (in.places.contains(other)) return;
  throw refused(
      to_text(in.schedule, place) + (is_send(action.kind) ? " is never received" : " is never sent"),
      fmt::format("rank {} has no {}", in.rank_of(action.peer), to_text(other)),
      fmt::format("{} on rank {}", to_text(other), in.rank_of(action.peer)),
      is_send(action.kind) ? "insert the receive, or remove the send" : "insert the send, or remove the receive");
}

void match(const Lookup& in, const Pair& pair, Links& links) {
  for (const Place& send : pair.sends) check_has_counterpart(in, send);
  for (const Place& receive : pair.receives) check_has_counterpart(in, receive);
  for (std::size_t i = 0; i < pair.receives.size(); ++i) {
    const Place& send = pair.sends[i];
    const Place& receive = pair.receives[i];
    if (counterpart(action_at(in.schedule, send)) != action_at(in.schedule, receive)) {
      throw refused(to_text(in.schedule, receive) + " gets another message",
                    fmt::format("message {} from rank {} to rank {} is {}", i, send.rank, receive.rank,
                                to_text(in.schedule, send)),
                    to_text(counterpart(action_at(in.schedule, receive))),
                    "receive the messages of a rank in the order in which it sends them");
    }
    links.partners[static_cast<std::size_t>(send.rank)][static_cast<std::size_t>(send.position)] = receive;
    links.partners[static_cast<std::size_t>(receive.rank)][static_cast<std::size_t>(receive.position)] = send;
  }
}

}  // namespace

Links links_of(const Schedule& schedule, const Edges& edges, const Places& places) {
  const Lookup in{.schedule = schedule, .edges = edges, .places = places};
  Links links;
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    const std::size_t length = schedule.actions[static_cast<std::size_t>(rank)].size();
    links.partners.emplace_back(length);
    auto& needs = links.needs.emplace_back();
    for (int position = 0; position < static_cast<int>(length); ++position) {
      needs.push_back(positions_of(in, {rank, position}));
    }
  }
  for (const auto& [ranks, pair] : pairs_of(in)) match(in, pair, links);
  return links;
}

}  // namespace reigen::schedule
