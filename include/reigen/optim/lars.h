// LARS: momentum SGD with a separate rate for each layer. You, Gitman and Ginsburg, Large Batch Training of
// Convolutional Networks, https://arxiv.org/abs/1708.03888, algorithm 1
//
//   auto optimizer = reigen::optim::LARS(parallel.parameters(), {.lr = 8, .groups = {reigen::optim::no_decay()}});
//
//   r = trust_coefficient·‖p‖ / (‖g‖ + weight_decay·‖p‖)   for each parameter p; g: its gradient, b: its momentum
//   b = momentum·b + lr·r·(g + weight_decay·p)
//   p -= b
// r = 1 where a norm is 0, and in groups with adapt = false (biases and norms, as in the authors' code). b contains the
// lr of earlier steps, so a change of lr takes effect with the delay of the momentum. A parameter must lie whole in one
// ParameterRange. Two passes: the norms (fp64, the same bits for any number of threads), then the step.
// Thread rule: one thread at a time.
#pragma once

#include "reigen/config/optimizers.h"
#include "reigen/optim/flat_optimizer.h"

namespace reigen::optim {

using LARS = FlatOptimizer<LARSOptions>;
extern template class FlatOptimizer<LARSOptions>;

}  // namespace reigen::optim
