// AdamW: Adam with decoupled weight decay. Loshchilov and Hutter, https://arxiv.org/abs/1711.05101
//
//   auto optimizer = reigen::optim::AdamW(parallel.parameters(), {.lr = 1e-3});
//
// p is a parameter, g its gradient, m and v are optimizer states, and t is the number of this parameter's step, from 1:
//   p -= lr·weight_decay·p
//   m = beta1·m + (1 - beta1)·g        v = beta2·v + (1 - beta2)·g²
//   p -= lr / (1 - beta1^t) · m / (sqrt(v / (1 - beta2^t)) + eps)
// Thread rule: one thread at a time may use an optimizer.
#pragma once

#include "reigen/config/optimizers.h"
#include "reigen/optim/flat_optimizer.h"

namespace reigen::optim {

using AdamW = FlatOptimizer<AdamWOptions>;
extern template class FlatOptimizer<AdamWOptions>;

}  // namespace reigen::optim
