// A small runtime for schedules, written without the code of src/schedule/. Its stages compute with numbers that tell
// apart all stages, micro-batches and data. It finds whether a schedule finishes and computes the gradients of the
// model. Thread rule: execute() is a pure function.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <initializer_list>
#include <map>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "reigen/schedule/schedule.h"

namespace reigen::testing_schedule {

using schedule::Action;
using schedule::Kind;
using schedule::Schedule;
using Number = std::uint64_t;

inline Number mixed(std::initializer_list<Number> numbers) {
  Number hash = 14695981039346656037U;
  for (const Number number : numbers) hash = (hash ^ (number + 0x9e3779b97f4a7c15U)) * 1099511628211U + (hash >> 29);
  return hash;
}

struct Connections {
  std::vector<std::vector<int>> from;  // from[s] = the stages whose outputs stage s reads
  std::vector<std::vector<int>> to;

  explicit Connections(const Schedule& schedule) : from(schedule.placement.size()), to(schedule.placement.size()) {
    for (int s = 0; s + 1 < schedule.stages(); ++s) add(s, s + 1);
    for (const auto& skip : schedule.skips) add(skip.from, skip.to);
  }
  void add(int a, int b) {
    from.at(static_cast<std::size_t>(b)).push_back(a);
    to.at(static_cast<std::size_t>(a)).push_back(b);
  }
};

// The formulas of a stage. `inputs` and `gradients` are folded by mixed().
inline Number output(int stage, int m, Number inputs) {
  return mixed({1, static_cast<Number>(stage), static_cast<Number>(m), inputs});
}
inline Number input_gradient(int stage, int m, int source, Number inputs, Number gradients) {
  return mixed({2, static_cast<Number>(stage), static_cast<Number>(m), static_cast<Number>(source), inputs, gradients});
}
inline Number weight_gradient(int stage, int m, Number inputs, Number gradients) {
  return mixed({3, static_cast<Number>(stage), static_cast<Number>(m), inputs, gradients});
}

// The gradients of the weights by (stage, micro-batch), computed without a schedule.
inline std::map<std::pair<int, int>, Number> reference(const Schedule& schedule) {
  const Connections edges(schedule);
  std::map<std::pair<int, int>, Number> result;
  for (int m = 0; m < schedule.micro_batches; ++m) {
    std::vector<Number> inputs(schedule.placement.size(), 7);
    std::vector<Number> gradients(schedule.placement.size(), 11);
    std::vector<Number> outputs(schedule.placement.size());
    for (int s = 0; s < schedule.stages(); ++s) {
      const auto i = static_cast<std::size_t>(s);
      for (const int a : edges.from[i]) inputs[i] = mixed({inputs[i], outputs[static_cast<std::size_t>(a)]});
      outputs[i] = output(s, m, inputs[i]);
    }
    for (int s = schedule.stages(); s-- > 0;) {
      const auto i = static_cast<std::size_t>(s);
      for (const int b : edges.to[i]) {
        const auto j = static_cast<std::size_t>(b);
        gradients[i] = mixed({gradients[i], input_gradient(b, m, s, inputs[j], gradients[j])});
      }
      result[{s, m}] = weight_gradient(s, m, inputs[i], gradients[i]);
    }
  }
  return result;
}

// One rank: its data, and how far it is in its list.
class Rank {
 public:
  using Queues = std::map<std::pair<int, int>, std::deque<std::pair<Action, Number>>>;

  Rank(const Schedule& schedule, const Connections& edges, Queues& queues, int rank)
      : schedule_(schedule), edges_(edges), queues_(queues), rank_(rank) {
    for (const Action& action : list()) {
      if (action.kind == Kind::kUnshard) sharded_.insert(action.stage);
    }
  }

  bool has_ended() const { return position_ == list().size(); }
  const std::string& error() const { return error_; }
  const std::map<std::pair<int, int>, Number>& weight_gradients() const { return weight_gradients_; }
  bool has_data_left() const { return !live_.empty() || !received_.empty() || !to_send_.empty(); }

  // Does one action. Returns false if it has to wait.
  bool step() {
    const Action action = list()[position_];
    if (schedule::is_receive(action.kind) && !is_stage(action.peer)) return fail(action);
    if (!is_stage(action.stage) || rank_of(action.stage) != rank_) return fail(action);
    bool waits = false;
    const bool works = done(action, waits);
    if (waits) return false;
    if (!works) return fail(action);
    ++position_;
    return true;
  }

 private:
  struct Live {
    Number inputs = 0;
    Number output = 0;
    Number gradients = 0;
    bool has_gradients = false;
  };

  const std::vector<Action>& list() const { return schedule_.actions[static_cast<std::size_t>(rank_)]; }
  bool is_stage(int stage) const { return stage >= 0 && stage < schedule_.stages(); }
  int rank_of(int stage) const { return schedule_.placement[static_cast<std::size_t>(stage)]; }
  bool fail(const Action& action) {
    error_ = "rank " + std::to_string(rank_) + " cannot do " + schedule::to_text(action);
    return false;
  }
  bool is_whole(int stage) const { return !sharded_.contains(stage) || whole_.contains(stage); }

  bool done(const Action& action, bool& waits) {
    switch (action.kind) {
      case Kind::kForward: return forward(action);
      case Kind::kBackward: return backward_input(action) && backward_weight(action);
      case Kind::kBackwardInput: return backward_input(action);
      case Kind::kBackwardWeight: return backward_weight(action);
      case Kind::kSendForward:
      case Kind::kSendBackward: return send(action);
      case Kind::kReceiveForward:
      case Kind::kReceiveBackward: return receive(action, waits);
      case Kind::kUnshard: return whole_.insert(action.stage).second;
      case Kind::kReshard: return whole_.erase(action.stage) == 1;
      case Kind::kReduceGrad: return reduced_.insert(action.stage).second;
    }
    return false;
  }

  bool forward(const Action& action) {
    const int m = action.micro_batch;
    if (m < 0 || m >= schedule_.micro_batches || !is_whole(action.stage)) return false;
    Live live{.inputs = 7};
    for (const int source : edges_.from[static_cast<std::size_t>(action.stage)]) {
      Number value = 0;
      if (rank_of(source) == rank_) {
        const auto found = live_.find({source, m});
        if (found == live_.end()) return false;
        value = found->second.output;
      } else if (!take(received_, {Kind::kForward, action.stage, m, source}, value)) {
        return false;
      }
      live.inputs = mixed({live.inputs, value});
    }
    live.output = output(action.stage, m, live.inputs);
    return live_.emplace(std::pair(action.stage, m), live).second;
  }

  bool backward_input(const Action& action) {
    const int m = action.micro_batch;
    const auto live = live_.find({action.stage, m});
    if (live == live_.end() || live->second.has_gradients || !is_whole(action.stage)) return false;
    live->second.gradients = 11;
    for (const int target : edges_.to[static_cast<std::size_t>(action.stage)]) {
      Number value = 0;
      const bool is_local = rank_of(target) == rank_;
      const bool is_there = is_local ? take(to_send_, {Kind::kBackward, target, m, action.stage}, value)
                                     : take(received_, {Kind::kBackward, action.stage, m, target}, value);
      if (!is_there) return false;
      live->second.gradients = mixed({live->second.gradients, value});
    }
    live->second.has_gradients = true;
    for (const int source : edges_.from[static_cast<std::size_t>(action.stage)]) {
      to_send_[{Kind::kBackward, action.stage, m, source}] =
          input_gradient(action.stage, m, source, live->second.inputs, live->second.gradients);
    }
    return true;
  }

  bool backward_weight(const Action& action) {
    const auto live = live_.find({action.stage, action.micro_batch});
    if (live == live_.end() || !live->second.has_gradients || !is_whole(action.stage)) return false;
    if (reduced_.contains(action.stage)) return false;
    const Number gradient =
        weight_gradient(action.stage, action.micro_batch, live->second.inputs, live->second.gradients);
    live_.erase(live);
    return weight_gradients_.emplace(std::pair(action.stage, action.micro_batch), gradient).second;
  }

  bool send(const Action& action) {
    if (!is_stage(action.peer)) return false;
    Number value = 0;
    if (action.kind == Kind::kSendForward) {
      const auto live = live_.find({action.stage, action.micro_batch});
      if (live == live_.end()) return false;
      value = live->second.output;
    } else if (!take(to_send_, {Kind::kBackward, action.stage, action.micro_batch, action.peer}, value)) {
      return false;
    }
    queues_[{rank_, rank_of(action.peer)}].emplace_back(action, value);
    return true;
  }

  bool receive(const Action& action, bool& waits) {
    auto& queue = queues_[{rank_of(action.peer), rank_}];
    if (queue.empty()) {
      waits = true;
      return true;
    }
    const auto [sent, value] = queue.front();
    queue.pop_front();
    const bool is_forward = action.kind == Kind::kReceiveForward;
    const Action wanted{is_forward ? Kind::kSendForward : Kind::kSendBackward, action.peer, action.micro_batch,
                        action.stage};
    if (sent != wanted) return false;
    const Kind kind = is_forward ? Kind::kForward : Kind::kBackward;
    return received_.emplace(Slot{kind, action.stage, action.micro_batch, action.peer}, value).second;
  }

  using Slot = std::tuple<Kind, int, int, int>;  // stage, micro-batch, peer
  static bool take(std::map<Slot, Number>& slots, const Slot& slot, Number& value) {
    const auto found = slots.find(slot);
    if (found == slots.end()) return false;
    value = found->second;
    slots.erase(found);
    return true;
  }

  const Schedule& schedule_;
  const Connections& edges_;
  Queues& queues_;
  int rank_;
  std::size_t position_ = 0;
  std::string error_;
  std::map<std::pair<int, int>, Live> live_;
  std::map<Slot, Number> received_;
  std::map<Slot, Number> to_send_;
  std::map<std::pair<int, int>, Number> weight_gradients_;
  std::set<int> sharded_;
  std::set<int> whole_;
  std::set<int> reduced_;
};

// Runs the ranks in random turns. Returns what went wrong; empty if every rank finished and all gradients are right.
inline std::string execute(const Schedule& schedule, std::mt19937& random) {
  const Connections edges(schedule);
  Rank::Queues queues;
  std::vector<Rank> ranks;
  for (int r = 0; r < schedule.ranks; ++r) ranks.emplace_back(schedule, edges, queues, r);
  std::vector<std::size_t> order(ranks.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  for (bool progress = true; progress;) {
    progress = false;
    std::shuffle(order.begin(), order.end(), random);
    for (const std::size_t r : order) {
      const auto steps = 1 + random() % 3;
      for (unsigned i = 0; i < steps && !ranks[r].has_ended() && ranks[r].step(); ++i) progress = true;
      if (!ranks[r].error().empty()) return ranks[r].error();
    }
  }
  std::map<std::pair<int, int>, Number> gradients;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    if (!ranks[r].has_ended()) return "rank " + std::to_string(r) + " waits forever";
    if (ranks[r].has_data_left()) return "rank " + std::to_string(r) + " has data left";
    gradients.insert(ranks[r].weight_gradients().begin(), ranks[r].weight_gradients().end());
  }
  for (const auto& [pair, queue] : queues) {
    if (!queue.empty()) return "a message was never received";
  }
  return gradients == reference(schedule) ? "" : "the gradients are wrong";
}

}  // namespace reigen::testing_schedule
