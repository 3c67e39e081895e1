// Which units a backward has behind it.
//
// Autograd evaluates what was made last first. So when backward comes to the end of a call (call_end.h), all that began
// after that end is over. That follows from the order of calls alone, which is the same on all ranks, and not from
// which weights a rank's loss reaches.
//
// Calls belong to a micro-batch: what one forward of the model computes. Several may be in flight. A backward goes
// through one of them or through several; the calls of the others say nothing about it, so enter() is told which.
// Thread rule: one thread at a time, the one that runs forward and backward.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

namespace torch::autograd {
struct Node;
}  // namespace torch::autograd

namespace reigen::parallel {

class UnitOrder {
 public:
  struct Call {  // begins and ends are numbered from 1, over all micro-batches
    std::size_t begin = 0;
    std::size_t end = 0;
    std::weak_ptr<torch::autograd::Node> node = {};  // in the graph, at the end of the call
  };
  struct MicroBatch {
    explicit MicroBatch(std::size_t units) : of_unit(units) {}
    std::vector<std::vector<Call>> of_unit;  // in the order of their ends
  };
  using MicroBatches = std::vector<std::shared_ptr<const MicroBatch>>;

  explicit UnitOrder(std::size_t units) : units_(units) {}

  // Calls from now on are of a new micro-batch, which lives as long as its graph.
  void begin_forward() {
    current_ = std::make_shared<MicroBatch>(units_);
    std::erase_if(live_, [](const auto& one) { return one.expired(); });
    live_.push_back(current_);
  }
  const std::shared_ptr<MicroBatch>& current() const { return current_; }
  // Those whose graphs may still have a backward to come.
  MicroBatches live() const {
    MicroBatches result;
    for (const auto& one : live_) {
      if (auto micro_batch = one.lock()) result.push_back(std::move(micro_batch));
    }
    return result;
  }

  std::size_t begin_call() { return ++count_; }
  // The end's number.
  std::size_t end_call() { return ++count_; }
  static void add(MicroBatch& micro_batch, std::size_t unit, Call call) {
    micro_batch.of_unit[unit].push_back(std::move(call));
  }

  // A backward through these micro-batches begins.
  void begin_backward(MicroBatches micro_batches) {
    entered_ = 0;
    through_ = std::move(micro_batches);
  }
  // It is at the end of the call with that number.
  void enter(std::size_t end) { entered_ = end; }
  void end_backward() { begin_backward({}); }
  // Of a call of the unit within the call that backward is at the end of, which is computed again. Of several the last,
  // of which less is behind. 0: there is none.
  std::size_t end_within(std::size_t unit) const {
    std::size_t last = 0;
    for (const auto& one : through_) {
      for (const Call& call : one->of_unit[unit]) {
        if (call.end < entered_) last = std::max(last, call.end);
      }
    }
    return last;
  }

  // All calls of the unit are: no gradient of it is still to come.
  bool is_behind(std::size_t unit) const {
    bool any = false;
    const bool all = every_call(unit, [&](const Call& call) {
      any = true;
      return call.begin > entered_;
    });
    return any && all;
  }
  // One of its calls is, and none is under way: nothing reads its weights before the end of another one.
  bool has_passed(std::size_t unit) const {
    bool any = false;
    const bool none_is_under_way = every_call(unit, [&](const Call& call) {
      any = any || call.begin > entered_;
      return call.begin > entered_ || call.end <= entered_;
    });
    return any && none_is_under_way;
  }

 private:
  template <class Holds>
  bool every_call(std::size_t unit, const Holds& holds) const {
    if (entered_ == 0 || unit >= units_) return false;
    return std::all_of(through_.begin(), through_.end(), [&](const auto& one) {
      return std::all_of(one->of_unit[unit].begin(), one->of_unit[unit].end(), holds);
    });
  }

  std::size_t units_;
  std::size_t count_ = 0;
  std::shared_ptr<MicroBatch> current_;
  std::vector<std::weak_ptr<const MicroBatch>> live_;
  MicroBatches through_;     // the backward that runs
  std::size_t entered_ = 0;  // 0: it has entered none
};

}  // namespace reigen::parallel
