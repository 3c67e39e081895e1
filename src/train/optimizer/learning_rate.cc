#include "train/optimizer/learning_rate.h"

#include "reigen/config/duration.h"

namespace reigen::train {
namespace {

optim::ScheduleOptions schedule_of(const OptimConfig& config, const RunLength& length) {
  optim::ScheduleOptions schedule;
  config.schedule.visit([&]<optim::Schedule kKind>(const optim::ScheduleOf<kKind>& kind) {
    schedule = kind.options;
    schedule.kind = kKind;
    if (kind.milestones.empty()) return;
    schedule.milestones.clear();
    for (const Duration& one : kind.milestones) schedule.milestones.push_back(steps_of(one, length.steps_of_epoch));
  });
  schedule.warmup_steps = config.warmup_steps;
  if (!config.warmup.empty())
    schedule.warmup_steps =
        steps_of(config::parse_steps_or_epochs("optim.warmup", config.warmup), length.steps_of_epoch);
  schedule.warmup_from = config.warmup_from;
  schedule.total_steps = length.total_steps;
  optim::check(schedule);
  return schedule;
}

// optim.lr, scaled for the global batch of this run.
double peak_of(const OptimConfig& config, std::int64_t global_batch) {
  double lr = 0;
  config.rule.visit([&](const auto& options) { lr = config.lr.value_or(options.lr); });
  if (config.lr_scaling == "none") return lr;
  const auto rule = config.lr_scaling == "linear" ? optim::LrScaling::kLinear : optim::LrScaling::kSqrt;
  return optim::scaled_lr(lr, rule, global_batch, config.base_batch.value_or(0));
}

}  // namespace

LearningRate::LearningRate(const OptimConfig& config, const RunLength& length)
    : schedule_(schedule_of(config, length)), peak_(peak_of(config, length.global_batch)), own_rate_(length.own_rate) {}

}  // namespace reigen::train
