// The learning rate of each step of a run, from its options.
// Thread rule: a value; every thread may have its own copy.
#pragma once

#include <cstdint>
#include <functional>

#include "reigen/optim/schedule.h"
#include "reigen/train/config.h"

namespace reigen::train {

struct RunLength {
  std::int64_t total_steps = 0;
  std::int64_t global_batch = 0;
  int world_size = 1;
  std::int64_t steps_of_epoch = 1;  // what an epoch is in optim.warmup and optim.milestones
  // The rate of each step, in place of that of the options.
  std::function<double(std::int64_t step)> own_rate = {};
};

class LearningRate {
 public:
  // Throws InvalidArgument with exit code 78 for options out of range.
  LearningRate(const OptimConfig& config, const RunLength& length);

  // The rate of a step, counted from 0, without what optim.schedule plateau makes of it.
  double at(std::int64_t step) const {
    return own_rate_ ? own_rate_(step) : optim::scheduled_lr(peak_, step, schedule_);
  }

  double peak() const { return peak_; }  // optim.lr, scaled for the global batch
  const optim::ScheduleOptions& schedule() const { return schedule_; }

 private:
  optim::ScheduleOptions schedule_;
  double peak_ = 0;
  std::function<double(std::int64_t step)> own_rate_;
};

}  // namespace reigen::train
