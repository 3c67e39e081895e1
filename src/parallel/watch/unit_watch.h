// Tells which unit of the model (nn/unit.h) a backward enters. A call here is one forward of a unit. Backward enters a
// unit after it is done with all calls that began after the unit's call, and before the unit's own backward. All ranks
// whose forwards make the same calls enter the same units in the same order. So code that runs at this point may wait
// for the other ranks, unlike code in a hook of a gradient.
//
// The watch wraps a unit from outside of recomputation. A unit that is computed again in backward is entered once,
// before it is computed again. Units within it are entered by the backward of the recomputed part.
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
  UnitWatch(const UnitWatch&) = delete;  // units point to one watch
  UnitWatch& operator=(const UnitWatch&) = delete;

  // `on_enter` is called when a backward enters a unit. The object that it refers to outlives the watch.
  void attach(std::function<void(std::size_t unit)> on_enter);
  // Removes on_enter. The units run as they did before attach().
  void detach();

  // A forward of the model begins, outside of backward: it is the next micro-batch.
  void begin_forward();
  // A backward is over.
  void end_backward();

  // Whether a backward follows the forward that runs.
  bool trains() const { return trains_; }
  std::size_t size() const { return units_.size(); }
  const std::vector<nn::Unit>& units() const { return units_; }
  // Whether the backward that runs is done with the unit, on all ranks alike.
  bool is_behind(std::size_t unit) const { return order_.is_behind(unit); }
  // Whether this backward reads the unit's weights no more until it enters the unit again.
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
  int backward_ = -1;  // id of the backward that order_ follows
};

}  // namespace reigen::parallel
