// Learning rates as functions of the step. So a schedule has no state, and a checkpoint need not save it.
//
//   optimizer.set_lr(optim::scheduled_lr(1e-3, step, {.kind = optim::Schedule::kCosine, .warmup_steps = 100,
//                                                     .total_steps = 10000}));
//
// Steps count from 0. Functions that take `lr` return a learning rate. The others return a factor, by which the caller
// multiplies the learning rate. A function with a parameter `steps` changes over this number of steps, and keeps its
// last value afterwards. If PyTorch (torch.optim.lr_scheduler) has the schedule, the function has PyTorch's name.
// Thread rule: any thread may call the functions, because they have no state.
#pragma once

#include <cstdint>
#include <vector>

#include "reigen/config/optimizers.h"

namespace reigen::optim {

// lr · min(1, (step + 1) / warmup_steps): the rate grows linearly over the first warmup_steps steps, then remains lr.
//
// Adam's first steps change every weight by lr, whatever its gradient. At the full learning rate these steps make
// dozens of neurons inactive, and rounding errors decide which neurons: see Liu et al., "On the Variance of the
// Adaptive Learning Rate and Beyond", 2020.
double warm_up(double lr, std::int64_t step, std::int64_t warmup_steps);

// from + (lr - from) · min(1, step / warmup_steps): the first step has the rate `from`, and step warmup_steps the rate
// lr. A `from` above lr counts as lr, so the rate never falls. Goyal et al. (https://arxiv.org/abs/1706.02677, section
// 2.2) begin with the rate of the batch that they have scaled from.
double warm_up_from(double from, double lr, std::int64_t step, std::int64_t warmup_steps);

// gamma^floor(step / step_size)
double step_factor(std::int64_t step, std::int64_t step_size, double gamma);
// gamma^(number of milestones <= step)
double multi_step_factor(std::int64_t step, const std::vector<std::int64_t>& milestones, double gamma);
// min_factor + (1 - min_factor) · (1 + cos(pi·step / steps)) / 2. Loshchilov and Hutter,
// https://arxiv.org/abs/1608.03983
double cosine_factor(std::int64_t step, std::int64_t steps, double min_factor);
// min_factor + (1 - min_factor) · (1 - step / steps)^power
double polynomial_factor(std::int64_t step, std::int64_t steps, double power, double min_factor);
// Rises along a cosine from 1 / div_factor to 1 over the first pct_start·steps steps. Then falls along a cosine to 1 /
// (div_factor · final_div_factor). Smith and Topin, https://arxiv.org/abs/1708.07120
double one_cycle_factor(std::int64_t step, std::int64_t steps, double pct_start, double div_factor,
                        double final_div_factor);
// The factor is 1 at first. Over the last decay_steps steps it falls linearly to min_factor. Hu et al.,
// https://arxiv.org/abs/2404.06395
double stable_decay_factor(std::int64_t step, std::int64_t steps, std::int64_t decay_steps, double min_factor);

// Throws InvalidArgument for an option out of range. The error names the option.
void check(const ScheduleOptions& options);

// Returns warm_up(lr · factor, step, warmup_steps), where options.kind selects the factor's function. If warmup_from is
// set, returns warm_up_from(warmup_from, lr · factor, step, warmup_steps) instead. For kStep and
// kMultiStep the factor depends on the step of the run, including the warm-up. The kinds whose function has a parameter
// `steps` run over the steps after the warm-up: factor(step - warmup_steps, steps = total_steps - warmup_steps).
double scheduled_lr(double lr, std::int64_t step, const ScheduleOptions& options);

// Returns the learning rate for batch size `batch`, if `lr` is a good rate for batch size `base_batch`. The linear rule
// is lr · batch / base_batch. It keeps the change of the weights in an epoch of SGD the same: Goyal et al.,
// https://arxiv.org/abs/1706.02677. The square-root rule is lr · sqrt(batch / base_batch). It keeps the variance of a
// step the same: Krizhevsky, https://arxiv.org/abs/1404.5997. Use the square-root rule for Adam and similar optimizers:
// Malladi et al., https://arxiv.org/abs/2205.10287.
double scaled_lr(double lr, LrScaling rule, std::int64_t batch, std::int64_t base_batch);

}  // namespace reigen::optim
