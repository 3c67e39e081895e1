// Stochastic gradient descent with momentum, as torch::optim::SGD defines it.
//
//   auto optimizer = reigen::optim::SGD(parallel.parameters(), {.lr = 0.1, .momentum = 0.9});
//
// p is a parameter, g its gradient, and b the optimizer state (the momentum):
//   g += weight_decay·p
//   b = momentum·b + (1 - dampening)·g      (first step of a parameter: b = g)
//   p -= lr·b                               (nesterov: p -= lr·(g + momentum·b))
// Sutskever et al., On the importance of initialization and momentum in deep learning, ICML 2013.
// Thread rule: one thread at a time may use an optimizer.
#pragma once

#include "reigen/config/optimizers.h"
#include "reigen/optim/flat_optimizer.h"

namespace reigen::optim {

using SGD = FlatOptimizer<SGDOptions>;
extern template class FlatOptimizer<SGDOptions>;

}  // namespace reigen::optim
