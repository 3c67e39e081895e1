// Where a rank's weights are when a forward or a backward computes with them. Two ways, chosen once by the layout:
// WeightsInPlace (each rank has its own, or all ranks of a machine have one memory) and UnitGatherer (each rank has its
// share, and the rest comes while a unit computes).
// Thread rule: one thread at a time, the one that runs forward and backward.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace reigen::parallel {

class Weights {
 public:
  virtual ~Weights() = default;

  // Before a forward: what belongs to no unit is there. May wait.
  virtual void begin_forward() = 0;
  // Backward enters a unit (unit_watch.h). First what it has passed leaves; then the unit's own are there. May wait.
  virtual void leave_passed(std::size_t entered) = 0;
  virtual void enter(std::size_t unit) = 0;
  // Throws InvalidArgument where a gradient of the range came while its values, of which it was made, were away.
  virtual void require_there(std::size_t range, const std::string& parameter) const = 0;
  // A backward is over: no unit reads its weights.
  virtual void end_backward() = 0;
  // All are there, and none rounded, until the next begin_forward() or change of the values. Collective.
  virtual void gather_all() = 0;
  virtual bool come_and_go() const = 0;
  // Blocks of memory that were allocated for weights that come, so far.
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
