// LARS: momentum SGD with a separate learning rate for each parameter. You, Gitman and Ginsburg, Large Batch Training
// of Convolutional Networks, https://arxiv.org/abs/1708.03888, algorithm 1
//
//   auto optimizer = reigen::optim::LARS(parallel.parameters(), {.lr = 8, .groups = {reigen::optim::no_decay()}});
//
//   r = trust_coefficient·‖p‖ / (‖g‖ + weight_decay·‖p‖)   p is a parameter, g its gradient, b its momentum
//   b = momentum·b + lr·r·(g + weight_decay·p)
//   p -= b
// r is 1 if ‖p‖ or ‖g‖ is 0. It is also 1 in parameter groups with adapt = false, which are for biases and the
// parameters of normalisation layers, as in the authors' code. b is a sum of terms with the lr of earlier steps, so a
// change of lr takes full effect only after several steps. A parameter must lie whole in one ParameterRange. A step
// makes two passes. The first computes the norms, in fp64, with the same bits for any number of threads. The second
// changes b and p.
// Thread rule: one thread at a time may use an optimizer.
#pragma once

#include "reigen/config/optimizers.h"
#include "reigen/optim/flat_optimizer.h"

namespace reigen::optim {

using LARS = FlatOptimizer<LARSOptions>;
extern template class FlatOptimizer<LARSOptions>;

}  // namespace reigen::optim
