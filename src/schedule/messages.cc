#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "reigen/schedule/generate.h"
#include "schedule/edges.h"
#include "schedule/waits.h"

namespace reigen::schedule {
namespace {

int duration(Kind kind) {
  switch (kind) {
    case Kind::kBackward: return 2;
    case Kind::kForward:
    case Kind::kBackwardInput:
    case Kind::kBackwardWeight: return 1;
    default: return 0;
  }
}

void check_has_no_messages(const Schedule& schedule) {
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    const auto& list = schedule.actions[static_cast<std::size_t>(rank)];
    for (int position = 0; position < static_cast<int>(list.size()); ++position) {
      if (!is_message(list[static_cast<std::size_t>(position)].kind)) continue;
      throw refused("add_messages: the schedule has messages already", to_text(schedule, {rank, position}),
                    "F, B, I, W, UNSHARD, RESHARD and REDUCE_GRAD only", "remove the messages");
    }
  }
}

// Times of the actions of a schedule without messages, if data are everywhere as soon as they are computed.
class Clock {
 public:
  // Throws InvalidArgument if the actions wait for each other.
  Clock(const Schedule& schedule, const Edges& edges, const Places& places)
      : schedule_(schedule), edges_(edges), places_(places), now_(static_cast<std::size_t>(schedule.ranks)) {
    for (const auto& list : schedule.actions) {
      starts_.emplace_back();
      starts_.back().reserve(list.size());
    }
    for (bool progress = true; progress;) {
      progress = false;
      for (int rank = 0; rank < schedule.ranks; ++rank) progress = go_on(rank) || progress;
    }
    check_finished();
  }

  std::int64_t start(const Place& place) const {
    return starts_[static_cast<std::size_t>(place.rank)][static_cast<std::size_t>(place.position)];
  }
  std::int64_t end(const Place& place) const { return start(place) + duration(action_at(schedule_, place).kind); }

 private:
  std::vector<Place> needs_of(const Action& action) const {
    const auto stage = static_cast<std::size_t>(action.stage);
    const auto place_of = [&](Kind kind, int at) {
      return places_.at({.kind = kind, .stage = at, .micro_batch = action.micro_batch});
    };
    std::vector<Place> needs;
    switch (action.kind) {
      case Kind::kForward:
        for (const int source : edges_.sources[stage]) needs.push_back(place_of(Kind::kForward, source));
        break;
      case Kind::kBackward:
      case Kind::kBackwardInput:
        needs.push_back(place_of(Kind::kForward, action.stage));
        for (const int target : edges_.targets[stage]) {
          needs.push_back(backward_at(places_, target, action.micro_batch));
        }
        break;
      case Kind::kBackwardWeight: needs.push_back(place_of(Kind::kBackwardInput, action.stage)); break;
      default: break;
    }
    return needs;
  }

  std::optional<Place> next_of(int rank) const {
    const auto r = static_cast<std::size_t>(rank);
    if (starts_[r].size() == schedule_.actions[r].size()) return std::nullopt;
    return Place{.rank = rank, .position = static_cast<int>(starts_[r].size())};
  }

  bool is_done(const Place& place) const {
    return static_cast<std::size_t>(place.position) < starts_[static_cast<std::size_t>(place.rank)].size();
  }

  // The first action that has not been done and that `place` needs.
  std::optional<Place> awaited_by(const Place& place) const {
    for (const Place& need : needs_of(action_at(schedule_, place))) {
      if (!is_done(need)) return need;
    }
    return std::nullopt;
  }

  // Does actions of the rank until one has to wait. Returns whether it has done any.
  bool go_on(int rank) {
    const auto r = static_cast<std::size_t>(rank);
    const std::size_t before = starts_[r].size();
    for (auto next = next_of(rank); next && !awaited_by(*next); next = next_of(rank)) {
      std::int64_t start = now_[r];
      for (const Place& need : needs_of(action_at(schedule_, *next))) start = std::max(start, end(need));
      starts_[r].push_back(start);
      now_[r] = start + duration(action_at(schedule_, *next).kind);
    }
    return starts_[r].size() > before;
  }

  void check_finished() const {
    std::vector<std::optional<Wait>> waits;
    bool finished = true;
    for (int rank = 0; rank < schedule_.ranks; ++rank) {
      const auto next = next_of(rank);
      const auto awaited = next ? awaited_by(*next) : std::nullopt;
      waits.push_back(awaited ? std::optional(Wait{.blocked = *next, .awaited = *awaited}) : std::nullopt);
      finished = finished && !next;
    }
    if (!finished) throw cycle_of(schedule_, waits);
  }

  const Schedule& schedule_;
  const Edges& edges_;
  const Places& places_;
  std::vector<std::int64_t> now_;  // of each rank, the end of its last action
  std::vector<std::vector<std::int64_t>> starts_;
};

// The messages that carry the data of one action, without those between two stages on one rank.
std::vector<Action> sends_of(const Schedule& schedule, const Edges& edges, const Action& action) {
  const bool is_forward = action.kind == Kind::kForward;
  if (!is_forward && action.kind != Kind::kBackward && action.kind != Kind::kBackwardInput) return {};
  const auto stage = static_cast<std::size_t>(action.stage);
  std::vector<Action> sends;
  for (const int peer : (is_forward ? edges.targets : edges.sources)[stage]) {
    if (schedule.placement[static_cast<std::size_t>(peer)] == schedule.placement[stage]) continue;
    sends.push_back({.kind = is_forward ? Kind::kSendForward : Kind::kSendBackward,
                     .stage = action.stage,
                     .micro_batch = action.micro_batch,
                     .peer = peer});
  }
  return sends;
}

// A receive, when its message exists, and the position of the action that it comes before. `order` is the number of the
// send among all sends of its rank.
struct Arrival {
  std::int64_t time = 0;
  int from_rank = 0;
  int order = 0;
  Action receive;
  int before = 0;
};

// The action that needs a message.
Place use_of(const Places& places, const Action& receive) {
  if (receive.kind == Kind::kReceiveBackward) return backward_at(places, receive.stage, receive.micro_batch);
  return places.at({.kind = Kind::kForward, .stage = receive.stage, .micro_batch = receive.micro_batch});
}

// Sets Arrival::before for the messages that a rank receives, which are in the order of their times.
void place(std::vector<Arrival>& arrivals, const std::vector<Action>& list, int rank, const Clock& clock,
           const Places& places) {
  int position = 0;
  for (Arrival& one : arrivals) {
    while (position < static_cast<int>(list.size()) && clock.start({rank, position}) < one.time) ++position;
    const bool is_skip = std::abs(one.receive.stage - one.receive.peer) > 1;
    one.before = is_skip ? use_of(places, one.receive).position : position;
  }
  // A message cannot overtake those that its rank has sent before. So these come no later.
  std::map<int, int> next;  // by the rank that sends
  for (auto one = arrivals.rbegin(); one != arrivals.rend(); ++one) {
    const auto [later, is_last] = next.emplace(one->from_rank, one->before);
    one->before = later->second = std::min(one->before, later->second);
  }
  std::stable_sort(arrivals.begin(), arrivals.end(),
                   [](const Arrival& a, const Arrival& b) { return a.before < b.before; });
}

// For each rank its receives, in the order of its list.
std::vector<std::vector<Arrival>> arrivals_of(const Schedule& schedule, const Edges& edges, const Clock& clock,
                                              const Places& places) {
  std::vector<std::vector<Arrival>> arrivals(static_cast<std::size_t>(schedule.ranks));
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    const auto& list = schedule.actions[static_cast<std::size_t>(rank)];
    int order = 0;
    for (int position = 0; position < static_cast<int>(list.size()); ++position) {
      for (const Action& send : sends_of(schedule, edges, list[static_cast<std::size_t>(position)])) {
        const int to = schedule.placement[static_cast<std::size_t>(send.peer)];
        arrivals[static_cast<std::size_t>(to)].push_back(
            {.time = clock.end({rank, position}), .from_rank = rank, .order = order++, .receive = counterpart(send)});
      }
    }
  }
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    auto& of_rank = arrivals[static_cast<std::size_t>(rank)];
    std::sort(of_rank.begin(), of_rank.end(), [](const Arrival& a, const Arrival& b) {
      return std::tie(a.time, a.from_rank, a.order) < std::tie(b.time, b.from_rank, b.order);
    });
    place(of_rank, schedule.actions[static_cast<std::size_t>(rank)], rank, clock, places);
  }
  return arrivals;
}

}  // namespace

Schedule add_messages(const Schedule& schedule) {
  const Edges edges = edges_of(schedule);
  check_has_no_messages(schedule);
  const Places places = places_of(schedule, edges);
  const Clock clock(schedule, edges, places);
  const auto arrivals = arrivals_of(schedule, edges, clock, places);
  Schedule result = schedule;
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    const auto r = static_cast<std::size_t>(rank);
    auto& list = result.actions[r];
    list.clear();
    std::size_t received = 0;
    for (int position = 0; position < static_cast<int>(schedule.actions[r].size()); ++position) {
      const Action& action = schedule.actions[r][static_cast<std::size_t>(position)];
      // No ranks can wait for each other: each message is received by an action that begins no earlier than its send,
      // and before an action that begins no earlier than the message exists.
      for (; received < arrivals[r].size() && arrivals[r][received].before == position; ++received) {
        list.push_back(arrivals[r][received].receive);
      }
      list.push_back(action);
      const auto sends = sends_of(schedule, edges, action);
      list.insert(list.end(), sends.begin(), sends.end());
    }
  }
  return result;
}

Schedule with_messages(const Schedule& schedule) {
  const bool has_messages = std::any_of(schedule.actions.begin(), schedule.actions.end(), [](const auto& list) {
    return std::any_of(list.begin(), list.end(), [](const Action& action) { return is_message(action.kind); });
  });
  return has_messages ? schedule : add_messages(schedule);
}

}  // namespace reigen::schedule
