#include "reigen/optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "base/check.h"
#include "optim/option_checks.h"

namespace reigen::optim {
namespace {

constexpr const char* kName = "schedule";

// The share of `steps` that is done, in [0, 1]. If there are 0 steps, the share is 1.
double progress(std::int64_t step, std::int64_t steps) {
  if (step < 0) return 0;
  return step >= steps ? 1 : static_cast<double>(step) / static_cast<double>(steps);
}

// Goes from `from` (share 0) to `to` (share 1) along half a cosine. Both ends are exact.
double anneal(double from, double to, double share) {
  const double weight = (1 + std::cos(std::numbers::pi * share)) / 2;
  return from * weight + to * (1 - weight);
}

bool has_end(Schedule kind) {
  return kind != Schedule::kConstant && kind != Schedule::kStep && kind != Schedule::kMultiStep;
}

void check_steps(const char* option, std::int64_t value, std::int64_t least) {
  if (value >= least) return;
  throw InvalidArgument(Report{.what = fmt::format("[{}] {} is out of range", kName, option),
                               .got = std::to_string(value),
                               .expected = fmt::format("at least {}", least),
                               .fix = fmt::format("set {} to such a number", option)});
}

}  // namespace

double warm_up(double lr, std::int64_t step, std::int64_t warmup_steps) {
  if (step + 1 >= warmup_steps) return lr;
  return lr * static_cast<double>(step + 1) / static_cast<double>(warmup_steps);
}

double warm_up_from(double from, double lr, std::int64_t step, std::int64_t warmup_steps) {
  if (step >= warmup_steps || from >= lr) return lr;
  return from + (lr - from) * static_cast<double>(step) / static_cast<double>(warmup_steps);
}

double step_factor(std::int64_t step, std::int64_t step_size, double gamma) {
  return std::pow(gamma, static_cast<double>(step / step_size));
}

double multi_step_factor(std::int64_t step, const std::vector<std::int64_t>& milestones, double gamma) {
  const auto passed = std::upper_bound(milestones.begin(), milestones.end(), step) - milestones.begin();
  return std::pow(gamma, static_cast<double>(passed));
}

double cosine_factor(std::int64_t step, std::int64_t steps, double min_factor) {
  return anneal(1, min_factor, progress(step, steps));
}

double polynomial_factor(std::int64_t step, std::int64_t steps, double power, double min_factor) {
  if (step >= steps) return min_factor;  // needed for power 0, because pow(0, 0) is 1
  return min_factor + (1 - min_factor) * std::pow(1 - progress(step, steps), power);
}

// The last step of a phase has the phase's final value, as in PyTorch: the two phases end at pct_start·steps - 1 and
// steps - 1.
double one_cycle_factor(std::int64_t step, std::int64_t steps, double pct_start, double div_factor,
                        double final_div_factor) {
  const double first = 1 / div_factor;
  const double last = first / final_div_factor;
  const auto at = static_cast<double>(std::max<std::int64_t>(step, 0));
  const double end = static_cast<double>(steps) - 1;
  const double top = std::clamp(pct_start * static_cast<double>(steps) - 1, 0.0, std::max(end, 0.0));
  if (at < top) return anneal(first, 1, at / top);
  if (at >= end) return at == top && end > 0 ? 1 : last;
  return anneal(1, last, (at - top) / (end - top));
}

double stable_decay_factor(std::int64_t step, std::int64_t steps, std::int64_t decay_steps, double min_factor) {
  if (step >= steps) return min_factor;  // holds also if decay_steps is 0
  return min_factor + (1 - min_factor) * progress(std::min(steps - step, decay_steps), decay_steps);
}

void check(const ScheduleOptions& options) {
  check_steps("warmup_steps", options.warmup_steps, 0);
  if (options.warmup_from) check_at_least_zero(kName, "warmup_from", *options.warmup_from);
  check_steps("total_steps", options.total_steps, has_end(options.kind) ? 1 : 0);
  if (options.kind == Schedule::kStep) check_steps("step_size", options.step_size, 1);
  check_steps("decay_steps", options.decay_steps, 0);
  check_at_least_zero(kName, "gamma", options.gamma);
  check_at_least_zero(kName, "power", options.power);
  check_above_zero(kName, "div_factor", options.div_factor);
  check_above_zero(kName, "final_div_factor", options.final_div_factor);
  const auto check_share = [](const char* option, double value) {
    if (!(value >= 0 && value <= 1)) refuse_option(kName, option, value, "at least 0 and at most 1");
  };
  check_share("min_factor", options.min_factor);
  check_share("pct_start", options.pct_start);
  if (!std::is_sorted(options.milestones.begin(), options.milestones.end())) {
    throw InvalidArgument(Report{.what = "[schedule] milestones are not in rising order",
                                 .expected = "steps, each larger than the one before",
                                 .fix = "sort them"});
  }
}

double scheduled_lr(double lr, std::int64_t step, const ScheduleOptions& options) {
  check(options);
  const std::int64_t at = std::max<std::int64_t>(step - options.warmup_steps, 0);
  const std::int64_t steps = options.total_steps - options.warmup_steps;
  double factor = 1;
  // In the warm-up the factor is 1, so the functions below are not called. If the warm-up is longer than the run,
  // `steps` is not above 0, and these functions would return their final value.
  const bool in_warmup = step < options.warmup_steps && has_end(options.kind) && options.kind != Schedule::kOneCycle;
  if (!in_warmup) {
    switch (options.kind) {
      case Schedule::kConstant:
      case Schedule::kPlateau: break;
      case Schedule::kStep: factor = step_factor(step, options.step_size, options.gamma); break;
      case Schedule::kMultiStep: factor = multi_step_factor(step, options.milestones, options.gamma); break;
      case Schedule::kCosine: factor = cosine_factor(at, steps, options.min_factor); break;
      case Schedule::kPolynomial: factor = polynomial_factor(at, steps, options.power, options.min_factor); break;
      case Schedule::kOneCycle:
        factor = one_cycle_factor(at, steps, options.pct_start, options.div_factor, options.final_div_factor);
        break;
      case Schedule::kWarmupStableDecay:
        factor = stable_decay_factor(at, steps, options.decay_steps, options.min_factor);
        break;
    }
  }
  if (options.warmup_from) return warm_up_from(*options.warmup_from, lr * factor, step, options.warmup_steps);
  return warm_up(lr * factor, step, options.warmup_steps);
}

double scaled_lr(double lr, LrScaling rule, std::int64_t batch, std::int64_t base_batch) {
  if (rule == LrScaling::kNone) return lr;
  check_steps("batch", batch, 1);
  check_steps("base_batch", base_batch, 1);
  const double ratio = static_cast<double>(batch) / static_cast<double>(base_batch);
  return lr * (rule == LrScaling::kLinear ? ratio : std::sqrt(ratio));
}

}  // namespace reigen::optim
