// Tells which unit of the model (nn/unit.h) a backward enters. A call here is one forward of a unit. Backward enters a
// unit after it is done with all calls that began after the unit's call, and before the unit's own backward. All ranks
// whose forwards make the same calls enter the same units in the same order. So code that runs at this point may wait
// for the other ranks, unlike code in a hook of a gradient.
//
// The watch's wrapper of a unit lies outside of the wrapper that recomputes the unit (nn::Layer). So backward enters a
// recomputed unit once, before the unit is computed again. If the recomputed unit contains other units, the backward of
// the recomputed part enters them.
// Thread rule: one thread at a time, the one that runs forward and backward.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "parallel/watch/unit_order.h"
#include "reigen/nn/unit.h"

namespace reigen::parallel {

class UnitWatch : public std::enable_shared_from_this<UnitWatch> {
 public:
  explicit UnitWatch(std::vector<nn::Unit> units);
  ~UnitWatch();
  UnitWatch(const UnitWatch&) = delete;  // units point to this object
  UnitWatch& operator=(const UnitWatch&) = delete;

  // `on_enter` is called when a backward enters a unit. Objects that `on_enter` uses must outlive the watch.
  void attach(std::function<void(std::size_t unit)> on_enter);
  // Removes on_enter. The units run as they did before attach().
  void detach();

  // Call it when a forward of the model begins, unless backward computes this forward again. Each such forward counts
  // as one micro-batch.
  void begin_forward();
  // Call it when a backward is over.
  void end_backward();

  // Whether the forward that runs records a graph, so that a backward may follow.
  bool trains() const { return trains_; }
  std::size_t size() const { return units_.size(); }
  const std::vector<nn::Unit>& units() const { return units_; }
  // Whether the backward that runs is done with the unit. The answer is the same on all ranks.
  bool is_behind(std::size_t unit) const { return order_.is_behind(unit); }
  // Whether the backward that runs does not read the unit's weights again before it enters the unit again.
  bool has_passed(std::size_t unit) const { return order_.has_passed(unit); }

 private:
  nn::Carry run(std::size_t unit, const nn::Carry& input, const nn::Unit::Forward& inner);
  nn::Carry run_again(std::size_t unit, const nn::Carry& input, const nn::Unit::Forward& inner);
  void enter(std::size_t unit, std::size_t end);
  void reach(std::size_t unit, std::size_t end);

  std::vector<nn::Unit> units_;
  std::function<void(std::size_t)> on_enter_;
  UnitOrder order_;
  bool trains_ = false;
  int backward_ = -1;  // autograd's id of the backward that order_ follows; -1 outside of a backward
};

}  // namespace reigen::parallel
