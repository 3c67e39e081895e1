// Adam, as torch::optim::Adam defines it. Kingma and Ba, https://arxiv.org/abs/1412.6980
//
//   auto optimizer = reigen::optim::Adam(parallel.parameters(), {.lr = 1e-3});
//
// p is a parameter, g its gradient, m and v are optimizer states, and t is the number of this parameter's step, from 1:
//   g += weight_decay·p                (an L2 term in the loss; AdamW instead decays the weights)
//   m = beta1·m + (1 - beta1)·g        v = beta2·v + (1 - beta2)·g²
//   p -= lr / (1 - beta1^t) · m / (sqrt(v / (1 - beta2^t)) + eps)
// Thread rule: one thread at a time may use an optimizer.
#pragma once

#include "reigen/config/optimizers.h"
#include "reigen/optim/flat_optimizer.h"

namespace reigen::optim {

using Adam = FlatOptimizer<AdamOptions>;
extern template class FlatOptimizer<AdamOptions>;

}  // namespace reigen::optim
