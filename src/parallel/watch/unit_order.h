// Tells which units a running backward is done with. A call here is one forward of a unit.
//
// Autograd evaluates the newest nodes first. So when backward comes to the end of a unit's call (call_end.h), it is
// done with all calls that began after that end. This follows from the order of calls alone, which is the same on all
// ranks. It does not depend on which weights a rank's loss reaches.
//
// A call belongs to a micro-batch: one forward of the model. Several micro-batches may be in flight. A backward goes
// through one or several of them, which begin_backward() gets. Calls of other micro-batches do not count.
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
  struct Call {  // all begins and ends are numbered together, from 1
    std::size_t begin = 0;
    std::size_t end = 0;
    std::weak_ptr<torch::autograd::Node> node = {};  // the graph node at the end of the call
  };
  struct MicroBatch {
    explicit MicroBatch(std::size_t units) : of_unit(units) {}
    std::vector<std::vector<Call>> of_unit;  // the calls of each unit, in the order of their ends
  };
  using MicroBatches = std::vector<std::shared_ptr<const MicroBatch>>;

  explicit UnitOrder(std::size_t units) : units_(units) {}

  // Calls from now on belong to a new micro-batch, which lives as long as its graph.
  void begin_forward() {
    current_ = std::make_shared<MicroBatch>(units_);
    std::erase_if(live_, [](const auto& one) { return one.expired(); });
    live_.push_back(current_);
  }
  const std::shared_ptr<MicroBatch>& current() const { return current_; }
  // The micro-batches whose graphs may still have a backward to come.
  MicroBatches live() const {
    MicroBatches result;
    for (const auto& one : live_) {
      if (auto micro_batch = one.lock()) result.push_back(std::move(micro_batch));
    }
    return result;
  }

  std::size_t begin_call() { return ++count_; }
  // Notes that a call has ended. Returns the number of this end.
  std::size_t end_call() { return ++count_; }
  static void add(MicroBatch& micro_batch, std::size_t unit, Call call) {
    micro_batch.of_unit[unit].push_back(std::move(call));
  }

  // Call it when a backward through these micro-batches begins.
  void begin_backward(MicroBatches micro_batches) {
    entered_ = 0;
    through_ = std::move(micro_batches);
  }
  // Call it when backward has come to the end with this number.
  void enter(std::size_t end) { entered_ = end; }
  void end_backward() { begin_backward({}); }
  // For a call X that is computed again: call it while backward is at the end of X. Returns the number of the end of
  // the last call of `unit` within X, or 0 if there is none. If X contains several calls of `unit`, the last is the
  // safe choice, because the fewest calls began after its end.
  std::size_t end_within(std::size_t unit) const {
    std::size_t last = 0;
    for (const auto& one : through_) {
      for (const Call& call : one->of_unit[unit]) {
        if (call.end < entered_) last = std::max(last, call.end);
      }
    }
    return last;
  }

  // Whether backward is done with all calls of the unit, so that no gradient of the unit's weights is still to come.
  bool is_behind(std::size_t unit) const {
    bool any = false;
    const bool all = every_call(unit, [&](const Call& call) {
      any = true;
      return call.begin > entered_;
    });
    return any && all;
  }
  // Whether backward is done with some call of the unit and is within none of its calls. If so, backward does not read
  // the unit's weights again before it comes to the end of another call of the unit.
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
  MicroBatches through_;     // the micro-batches of the running backward
  std::size_t entered_ = 0;  // number of the end that backward came to last; 0 before the first
};

}  // namespace reigen::parallel
