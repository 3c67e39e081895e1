// After which steps something happens that a Duration describes: every 500 steps, every quarter of an epoch, every half
// hour. All ranks get the same answer.
// Thread rule: used only by the thread of its rank.
#pragma once

#include <chrono>
#include <cmath>
#include <cstdint>

#include "reigen/comm/communicator.h"
#include "reigen/config/duration.h"

namespace reigen::train {

class Cadence {
 public:
  // `steps_of_epoch`: at least 1.
  Cadence(const config::Duration& every, std::int64_t steps_of_epoch) : every_(every) {
    if (every_.unit == config::Duration::Unit::kEpochs) every_.count *= static_cast<double>(steps_of_epoch);
  }

  // Whether it happens after step `done`. Call it once after each step. Collective for a duration in time, where rank
  // 0's clock decides; it counts from the begin of this start of the run.
  bool is_due(std::int64_t done, const Communicator& world) {
    if (every_.unit != config::Duration::Unit::kSeconds) {
      // The step in which another multiple is reached. A fraction of an epoch may be no whole number of steps.
      constexpr double kRounding = 1e-9;
      const auto reached = [&](std::int64_t steps) {
        return std::floor(static_cast<double>(steps) / every_.count + kRounding);
      };
      return reached(done) > reached(done - 1);
    }
    const auto now = std::chrono::steady_clock::now();
    std::int32_t due = std::chrono::duration<double>(now - last_).count() >= every_.count ? 1 : 0;
    if (world.size() > 1) world.broadcast(&due, 1, DataType::kInt32, 0, {.tag = "time of an event"});
    if (due != 0) last_ = now;
    return due != 0;
  }

 private:
  config::Duration every_;
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

}  // namespace reigen::train
