// Learning rates as functions of the step, so there is no state to save or to resume.
//
//   optimizer.set_lr(optim::scheduled_lr(1e-3, step, {.kind = optim::Schedule::kCosine, .warmup_steps = 100,
//                                                     .total_steps = 10000}));
//
// Steps count from 0. Functions that take `lr` return a learning rate; the others return a factor of it. A function
// with an end runs over `steps` steps and keeps its last value after them. The names are those of PyTorch
// (torch.optim.lr_scheduler) where PyTorch has the schedule. Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "reigen/config/optimizers.h"

namespace reigen::optim {

// lr · min(1, (step + 1) / warmup_steps): grows linearly over the first steps, then remains lr.
//
// Adam's first steps change every weight by lr, whatever its gradient. At the full rate this makes dozens of neurons
// inactive, and rounding decides which: see Liu et al., "On the Variance of the Adaptive Learning Rate and Beyond",
// 2020.
double warm_up(double lr, std::int64_t step, std::int64_t warmup_steps);

// gamma^floor(step / step_size)
double step_factor(std::int64_t step, std::int64_t step_size, double gamma);
// gamma^(number of milestones <= step)
double multi_step_factor(std::int64_t step, const std::vector<std::int64_t>& milestones, double gamma);
// min_factor + (1 - min_factor) · (1 + cos(pi·step / steps)) / 2. Loshchilov and Hutter,
// https://arxiv.org/abs/1608.03983
double cosine_factor(std::int64_t step, std::int64_t steps, double min_factor);
// min_factor + (1 - min_factor) · (1 - step / steps)^power
double polynomial_factor(std::int64_t step, std::int64_t steps, double power, double min_factor);
// Rises along a cosine from 1 / div_factor to 1 over the first pct_start·steps, then falls along a cosine to 1 /
// (div_factor · final_div_factor). Smith and Topin, https://arxiv.org/abs/1708.07120
double one_cycle_factor(std::int64_t step, std::int64_t steps, double pct_start, double div_factor,
                        double final_div_factor);
// 1 at first; over the last decay_steps it falls linearly to min_factor. Hu et al., https://arxiv.org/abs/2404.06395
double stable_decay_factor(std::int64_t step, std::int64_t steps, std::int64_t decay_steps, double min_factor);

// Throws InvalidArgument for options out of range, naming the option.
void check(const ScheduleOptions& options);

// warm_up(lr, step, warmup_steps) · factor. kStep and kMultiStep count all steps of the run. The kinds with an end run
// over the steps after the warm-up: factor(step - warmup_steps, steps = total_steps - warmup_steps).
double scheduled_lr(double lr, std::int64_t step, const ScheduleOptions& options);

// The learning rate for another batch size, from a rate that was found with batch size `base_batch`. The linear rule,
// lr · batch / base_batch, keeps the change of the weights in an epoch of SGD the same: Goyal et al.,
// https://arxiv.org/abs/1706.02677. The square-root rule, lr · sqrt(batch / base_batch), keeps the variance of a step
// the same: Krizhevsky, https://arxiv.org/abs/1404.5997. The square-root rule is the rule for Adam and similar
// optimizers: Malladi et al., https://arxiv.org/abs/2205.10287.
double scaled_lr(double lr, LrScaling rule, std::int64_t batch, std::int64_t base_batch);

}  // namespace reigen::optim
