// optim.schedule plateau: multiplies the learning rate when a figure of the validations stops improving, as
// ReduceLROnPlateau of PyTorch with threshold 0.
//
// State: the best value so far, how many validations have come since then that were not better, and how often the rate
// was multiplied. note() is called with the figure of each validation, in order; a resumed run calls it first with
// those of the validations before the checkpoint. The figures are the same on all ranks, and so is the rate. Thread
// rule: used only by the thread of its rank.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>

#include "reigen/config/optimizers.h"

namespace reigen::train {

class Plateau {
 public:
  explicit Plateau(const optim::ScheduleOptions& options) : options_(options) {}

  bool is_on() const { return options_.kind == optim::Schedule::kPlateau; }
  const std::string& monitor() const { return options_.monitor; }

  // Notes the figure of a validation. NaN is never better. Returns whether the rate changes.
  bool note(double value) {
    const double sign = options_.mode == "max" ? -1 : 1;
    if (!std::isnan(value) && (!best_ || sign * value < sign * *best_)) {
      best_ = value;
      since_ = 0;
      return false;
    }
    if (++since_ <= options_.patience) return false;
    since_ = 0;
    const double before = factor();
    ++reductions_;
    return factor() != before;
  }

  // By what the learning rate is multiplied now.
  double factor() const {
    return std::max(std::pow(options_.gamma, static_cast<double>(reductions_)), options_.min_factor);
  }

 private:
  optim::ScheduleOptions options_;
  std::optional<double> best_ = {};
  std::int64_t since_ = 0;
  std::int64_t reductions_ = 0;
};

}  // namespace reigen::train
