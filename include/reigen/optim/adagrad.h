// Adagrad, as torch::optim::Adagrad defines it. Duchi, Hazan and Singer, https://jmlr.org/papers/v12/duchi11a.html
//
//   auto optimizer = reigen::optim::Adagrad(parallel.parameters(), {.lr = 1e-2});
//
// p is a parameter, g its gradient, s the optimizer state, and t the number of this parameter's step, counted from 1:
//   g += weight_decay·p
//   s += g²                                (starts at initial_accumulator_value)
//   p -= lr / (1 + (t - 1)·lr_decay) · g / (sqrt(s) + eps)
// Adagrad has no option bf16_states. In bf16 the sum s would stop growing when it is 256 times as large as the g² that
// a step adds.
// Thread rule: one thread at a time may use an optimizer.
#pragma once

#include "reigen/config/optimizers.h"
#include "reigen/optim/flat_optimizer.h"

namespace reigen::optim {

using Adagrad = FlatOptimizer<AdagradOptions>;
extern template class FlatOptimizer<AdagradOptions>;

}  // namespace reigen::optim
