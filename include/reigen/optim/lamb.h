// LAMB: Adam with a separate rate for each layer. You et al., Large Batch Optimization for Deep Learning: Training BERT
// in 76 minutes, https://arxiv.org/abs/1904.00962, algorithm 2
//
//   auto optimizer = reigen::optim::LAMB(parallel.parameters(), {.lr = 2e-3, .groups = {reigen::optim::no_decay()}});
//
// g is the gradient of p, m and v are states, t is the number of this parameter's step, counted from 1:
//   m = beta1·m + (1 - beta1)·g        v = beta2·v + (1 - beta2)·g²
//   u = m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps) + weight_decay·p
//   p -= lr · phi(‖p‖) / ‖u‖ · u       for each parameter p;    phi(z) = min(max(z, norm_low), norm_high)
// The ratio phi(‖p‖) / ‖u‖ is 1 where a norm is 0, and in groups with adapt = false (biases and norms, as in the
// authors' code). A parameter must lie whole in one ParameterRange.
// Two passes: moments and norms (fp64, the same bits for any number of threads), then the step.
// Thread rule: one thread at a time.
#pragma once

#include "reigen/config/optimizers.h"
#include "reigen/optim/flat_optimizer.h"

namespace reigen::optim {

using LAMB = FlatOptimizer<LAMBOptions>;
extern template class FlatOptimizer<LAMBOptions>;

}  // namespace reigen::optim
