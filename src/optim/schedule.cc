#include "reigen/optim/schedule.h"

namespace reigen::optim {

double warm_up(double lr, std::int64_t step, std::int64_t warmup_steps) {
  if (step + 1 >= warmup_steps) return lr;
  return lr * static_cast<double>(step + 1) / static_cast<double>(warmup_steps);
}

}  // namespace reigen::optim
