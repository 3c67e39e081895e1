// Lion: each weight moves by the sign of a momentum. Chen et al., Symbolic Discovery of Optimization Algorithms,
// https://arxiv.org/abs/2302.06675, program 1
//
//   auto optimizer = reigen::optim::Lion(parallel.parameters(), {.lr = 1e-4, .weight_decay = 0.1});
//
// p is a parameter, g its gradient, and m the optimizer state (the momentum):
//   c = beta1·m + (1 - beta1)·g
//   p -= lr·(sign(c) + weight_decay·p)
//   m = beta2·m + (1 - beta2)·g
// Apart from weight decay every weight changes by lr in each step. So use a third to a tenth of AdamW's lr, and
// multiply the weight decay by 3 to 10 (section 5 of the paper). sign(0) = 0.
// Thread rule: one thread at a time may use an optimizer.
#pragma once

#include "reigen/config/optimizers.h"
#include "reigen/optim/flat_optimizer.h"

namespace reigen::optim {

using Lion = FlatOptimizer<LionOptions>;
extern template class FlatOptimizer<LionOptions>;

}  // namespace reigen::optim
