#include "reigen/schedule/replay.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "schedule/in_flight.h"
#include "schedule/links.h"

namespace reigen::schedule {
namespace {

constexpr double kNotYet = -std::numeric_limits<double>::infinity();

void check_time(const char* what, double time) {
  if (std::isfinite(time) && time >= 0) return;
  throw refused(fmt::format("replay: the time {} is wrong", what), fmt::format("{}", time), "0 or more");
}

void check_times(const Schedule& schedule, const Times& times) {
  if (times.stages.size() != 1 && times.stages.size() != schedule.placement.size()) {
    throw refused("replay: the number of times is wrong", fmt::format("times of {} stages", times.stages.size()),
                  fmt::format("1 or {}", schedule.placement.size()));
  }
  if (!times.skips.empty() && times.skips.size() != schedule.skips.size()) {
    throw refused("replay: the number of times is wrong", fmt::format("times of {} skips", times.skips.size()),
                  fmt::format("0 or {}", schedule.skips.size()));
  }
  for (const StageTimes& stage : times.stages) {
    check_time("forward", stage.forward);
    check_time("backward", stage.backward);
    check_time("backward_input", stage.backward_input);
    check_time("backward_weight", stage.backward_weight);
    check_time("transfer", stage.transfer);
    check_time("unshard", stage.unshard);
    check_time("reshard", stage.reshard);
    check_time("reduce_grad", stage.reduce_grad);
  }
  for (const double skip : times.skips) check_time("of a skip", skip);
  check_time("latency", times.latency);
}

// The time that the rank spends in an action.
double duration(const Times& times, const Action& action) {
  const StageTimes& stage = times.stages[times.stages.size() == 1 ? 0 : static_cast<std::size_t>(action.stage)];
  switch (action.kind) {
    case Kind::kForward: return stage.forward;
    case Kind::kBackward: return stage.backward;
    case Kind::kBackwardInput: return stage.backward_input;
    case Kind::kBackwardWeight: return stage.backward_weight;
    case Kind::kUnshard: return stage.unshard;
    case Kind::kReshard: return stage.reshard;
    case Kind::kReduceGrad: return stage.reduce_grad;
    default: return 0;
  }
}

// The time that a message occupies its link. A gradient takes as long as the tensor that it is the gradient of.
double transfer_time(const Schedule& schedule, const Times& times, const Action& send) {
  const int from = std::min(send.stage, send.peer);
  const int to = std::max(send.stage, send.peer);
  if (to == from + 1) return times.stages[times.stages.size() == 1 ? 0 : static_cast<std::size_t>(from)].transfer;
  const auto skip = std::find(schedule.skips.begin(), schedule.skips.end(), Skip{.from = from, .to = to});
  return times.skips.empty() ? 0 : times.skips[static_cast<std::size_t>(skip - schedule.skips.begin())];
}

class Player {
 public:
  Player(const Schedule& schedule, const Links& links, const Times& times)
      : schedule_(schedule), links_(links), times_(times), now_(static_cast<std::size_t>(schedule.ranks)) {
    replay_.ranks.resize(static_cast<std::size_t>(schedule.ranks));
    for (const auto& list : schedule.actions) arrivals_.emplace_back(list.size(), kNotYet);
    transfers_.resize(static_cast<std::size_t>(schedule.ranks));
  }

  Replay played() {
    for (bool progress = true; progress;) {
      progress = false;
      for (int rank = 0; rank < schedule_.ranks; ++rank) progress = go_on(rank) || progress;
    }
    for (auto& of_rank : transfers_) {
      replay_.transfers.insert(replay_.transfers.end(), of_rank.begin(), of_rank.end());
    }
    for (const double end : now_) replay_.total = std::max(replay_.total, end);
    double all_idle = 0;
    for (const auto& spans : replay_.ranks) {
      double busy = 0;
      for (const Span& span : spans) busy += is_message(span.action.kind) ? 0 : span.end - span.start;
      replay_.idle.push_back(std::max(0.0, replay_.total - busy));
      all_idle += replay_.idle.back();
    }
    if (replay_.total > 0) replay_.bubble = all_idle / (replay_.total * schedule_.ranks);
    return std::move(replay_);
  }

 private:
  // When the data of the rank's next action are there. kNotYet if a message has not been sent yet.
  double ready(std::size_t rank, std::size_t position) const {
    const Action& action = schedule_.actions[rank][position];
    if (is_receive(action.kind)) return times_.receives_wait ? arrivals_[rank][position] : now_[rank];
    double time = now_[rank];
    for (const int need : links_.needs[rank][position]) {
      const auto at = static_cast<std::size_t>(need);
      if (!is_receive(schedule_.actions[rank][at].kind)) continue;
      if (arrivals_[rank][at] == kNotYet) return kNotYet;
      time = std::max(time, arrivals_[rank][at]);
    }
    return time;
  }

  void send(std::size_t rank, std::size_t position) {
    const Action& action = schedule_.actions[rank][position];
    const Place& to = links_.partners[rank][position];
    double& link_free = links_free_[{static_cast<int>(rank), to.rank}];
    const double start = std::max(now_[rank], link_free);
    link_free = start + transfer_time(schedule_, times_, action);
    const double arrival = link_free + times_.latency;
    arrivals_[static_cast<std::size_t>(to.rank)][static_cast<std::size_t>(to.position)] = arrival;
    transfers_[rank].push_back({action, static_cast<int>(rank), to.rank, start, arrival});
  }

  // Does actions of the rank until a message is missing. Returns whether it has done any.
  bool go_on(int number) {
    const auto rank = static_cast<std::size_t>(number);
    std::vector<Span>& spans = replay_.ranks[rank];
    const std::size_t before = spans.size();
    while (spans.size() < schedule_.actions[rank].size()) {
      const std::size_t position = spans.size();
      const Action& action = schedule_.actions[rank][position];
      const double data = ready(rank, position);
      if (data == kNotYet) break;
      // A receive lasts as long as the rank waits in it.
      const double start = is_receive(action.kind) ? now_[rank] : std::max(now_[rank], data);
      const double end = is_receive(action.kind) ? std::max(start, data) : start + duration(times_, action);
      if (is_send(action.kind)) send(rank, position);
      spans.push_back({action, start, end});
      now_[rank] = end;
    }
    return spans.size() > before;
  }

  const Schedule& schedule_;
  const Links& links_;
  const Times& times_;
  std::vector<double> now_;                           // of each rank, the end of its last action
  std::vector<std::vector<double>> arrivals_;         // of each receive, when its message arrives
  std::map<std::pair<int, int>, double> links_free_;  // when the last message of a link has been transferred
  std::vector<std::vector<Transfer>> transfers_;      // by the rank that sends
  Replay replay_;
};

}  // namespace

Replay replay(const Schedule& schedule, const Times& times) {
  const Links links = checked_links_of(schedule);
  check_times(schedule, times);
  Replay result = Player(schedule, links, times).played();
  result.in_flight = in_flight_of(schedule, {});
  return result;
}

}  // namespace reigen::schedule
