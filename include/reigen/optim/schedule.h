// Learning rates as functions of the step: nothing to save, nothing to resume.
//
//   optimizer.set_lr(optim::warm_up(1e-3, step, 100));
//
// Thread rule: pure functions.
#pragma once

#include <cstdint>

namespace reigen::optim {

// lr · min(1, (step + 1) / warmup_steps): grows linearly over the first steps (counted from 0), then stays.
//
// Adam's first steps move every weight by lr whatever its gradient, so at the full rate units die in dozens, and
// rounding decides which: see Liu et al., "On the Variance of the Adaptive Learning Rate and Beyond", 2020.
double warm_up(double lr, std::int64_t step, std::int64_t warmup_steps);

}  // namespace reigen::optim
