// Makes sure that a rank's weights are in memory when a forward or a backward computes with them. There are two
// implementations. The layout selects one of them when a model is wrapped. With WeightsInPlace each rank has all
// weights, or all ranks of a machine share one copy. With UnitGatherer each rank has its share of the weights, and the
// rest is gathered while a unit computes.
// Thread rule: one thread at a time, the one that runs forward and backward.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace reigen::parallel {

class Weights {
 public:
  virtual ~Weights() = default;

  // Called before a forward: gathers the weights that belong to no unit. May wait.
  virtual void begin_forward() = 0;
  // Called when backward enters a unit (unit_watch.h): leave_passed() frees the weights that backward has passed, then
  // enter() gathers the weights of the unit that backward enters. May wait.
  virtual void leave_passed(std::size_t entered) = 0;
  virtual void enter(std::size_t unit) = 0;
  // Call it when a gradient of the range has come. Throws InvalidArgument if the range's weights are not in memory,
  // because the gradient was then computed without the right weights.
  virtual void require_there(std::size_t range, const std::string& parameter) const = 0;
  // Called when a backward is over, so that no unit reads its weights any more.
  virtual void end_backward() = 0;
  // Gathers all weights, without rounding any. They remain in memory until the next begin_forward() or the next change
  // of the values. Collective.
  virtual void gather_all() = 0;
  // Whether weights are gathered and freed unit by unit.
  virtual bool come_and_go() const = 0;
  // How many memory blocks were allocated so far for gathered weights.
  virtual std::int64_t allocations() const = 0;
};

class WeightsInPlace final : public Weights {
 public:
  void begin_forward() override {}
  void leave_passed(std::size_t) override {}
  void enter(std::size_t) override {}
  void require_there(std::size_t, const std::string&) const override {}
  void end_backward() override {}
  void gather_all() override {}
  bool come_and_go() const override { return false; }
  std::int64_t allocations() const override { return 0; }
};

}  // namespace reigen::parallel
