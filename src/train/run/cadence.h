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

// A step in the passes over the training data.
struct InEpoch {
  std::int64_t epoch = 0;  // counted from 0
  std::int64_t begin = 0;  // samples of the epoch before the step
  std::int64_t end = 0;    // and after it
};

class Cadence {
 public:
  // `samples`: of an epoch, at least 1.
  Cadence(const config::Duration& every, std::int64_t samples)
      : every_(every), samples_(static_cast<double>(samples)) {}

  // Whether it happens after step `done`. Call it once after each step. Collective for a duration in time, where rank
  // 0's clock decides; it counts from the begin of this start of the run.
  bool is_due(std::int64_t done, const InEpoch& step, const Communicator& world) {
    constexpr double kRounding = 1e-9;
    const auto multiples = [&](double count) { return std::floor(count / every_.count + kRounding); };
    if (every_.unit == config::Duration::Unit::kSteps)
      return multiples(static_cast<double>(done)) > multiples(static_cast<double>(done - 1));
    if (every_.unit == config::Duration::Unit::kEpochs) {
      const auto epochs = [&](std::int64_t samples) {
        return static_cast<double>(step.epoch) + static_cast<double>(samples) / samples_;
      };
      return multiples(epochs(step.end)) > multiples(epochs(step.begin));
    }
    const auto now = std::chrono::steady_clock::now();
    std::int32_t due = std::chrono::duration<double>(now - last_).count() >= every_.count ? 1 : 0;
    if (world.size() > 1) world.broadcast(&due, 1, DataType::kInt32, 0, {.tag = "time of an event"});
    if (due != 0) last_ = now;
    return due != 0;
  }

 private:
  config::Duration every_;
  double samples_;
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

}  // namespace reigen::train
