// Ends a training when a figure of its validations no longer improves (stop.monitor).
//
// State: the best value so far, and how many validations have come since then that were not better. note() is called
// with the figure of each validation, in order; a resumed run calls it first with those of the validations before the
// checkpoint. The figures are the same on all ranks, and so is the answer.
// Thread rule: used only by the thread of its rank.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include "reigen/config/validation.h"

namespace reigen::train {

class EarlyStop {
 public:
  explicit EarlyStop(const config::StopConfig& config) : config_(config), sign_(config.mode == "max" ? 1 : -1) {}

  // Whether a figure is watched.
  bool is_on() const { return !config_.monitor.empty(); }
  const std::string& monitor() const { return config_.monitor; }

  // Notes the figure of a validation. NaN is worse than any number.
  void note(double value) {
    const double better = std::isnan(value) ? -std::numeric_limits<double>::infinity() : sign_ * value;
    if (best_ == -std::numeric_limits<double>::infinity() ? better > best_ : better > best_ + config_.min_delta) {
      best_ = better;
      since_ = 0;
    } else {
      ++since_;
    }
    is_reached_ = config_.threshold && better >= sign_ * *config_.threshold;
  }

  // Why the training ends now; empty if it goes on, and before the first note().
  std::string reason() const {
    if (is_reached_) return fmt::format("{} has reached {}", config_.monitor, *config_.threshold);
    if (since_ < config_.patience) return "";
    if (best_ == -std::numeric_limits<double>::infinity())
      return fmt::format("{} was NaN or as bad as possible in {} validations", config_.monitor, since_);
    return fmt::format("{} was not better than {:.6g} in {} validations", config_.monitor, sign_ * best_, since_);
  }

 private:
  config::StopConfig config_;
  double sign_;
  double best_ = -std::numeric_limits<double>::infinity();  // times sign_, so that larger is better
  std::int64_t since_ = 0;
  bool is_reached_ = false;
};

}  // namespace reigen::train
