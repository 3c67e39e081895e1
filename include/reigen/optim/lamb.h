// LAMB: Adam with a separate learning rate for each parameter. You et al., Large Batch Optimization for Deep Learning:
// Training BERT in 76 minutes, https://arxiv.org/abs/1904.00962, algorithm 2
//
//   auto optimizer = reigen::optim::LAMB(parallel.parameters(), {.lr = 2e-3, .groups = {reigen::optim::no_decay()}});
//
// g is the gradient of the parameter p, m and v are optimizer states, and t is the number of this parameter's step,
// from 1:
//   m = beta1·m + (1 - beta1)·g        v = beta2·v + (1 - beta2)·g²
//   u = m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps) + weight_decay·p
//   p -= lr · phi(‖p‖) / ‖u‖ · u       with phi(z) = min(max(z, norm_low), norm_high)
// The ratio phi(‖p‖) / ‖u‖ is 1 if ‖p‖ or ‖u‖ is 0. It is also 1 in parameter groups with adapt = false, which are for
// biases and the parameters of normalisation layers, as in the authors' code. A parameter must lie whole in one
// ParameterRange.
// A step makes two passes. The first computes m, v and the norms. The norms are in fp64 and have the same bits for any
// number of threads. The second pass changes p.
// Thread rule: one thread at a time may use an optimizer.
#pragma once

#include "reigen/config/optimizers.h"
#include "reigen/optim/flat_optimizer.h"

namespace reigen::optim {

using LAMB = FlatOptimizer<LAMBOptions>;
extern template class FlatOptimizer<LAMBOptions>;

}  // namespace reigen::optim
