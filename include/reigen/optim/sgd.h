// Stochastic gradient descent with momentum, as torch::optim::SGD defines it.
//
//   auto optimizer = reigen::optim::SGD(parallel.parameters(), {.lr = 0.1, .momentum = 0.9});
//
//   g += weight_decay·p
//   b = momentum·b + (1 - dampening)·g      (first step of a parameter: b = g)
//   p -= lr·b                               (nesterov: p -= lr·(g + momentum·b))
// Sutskever et al., On the importance of initialization and momentum in deep learning, ICML 2013.
// Thread rule: one thread at a time.
#pragma once

#include <vector>

#include "reigen/optim/flat_optimizer.h"

namespace reigen::optim {

// State: "<parameter>.momentum" (with momentum) and "<parameter>.step". Memory: the values once, or nothing.
struct SGDOptions {
  double lr = 1e-3;            // at least 0
  double momentum = 0;         // at least 0; 0 keeps no state tensor
  double dampening = 0;        // finite
  double weight_decay = 0;     // at least 0
  bool nesterov = false;       // needs momentum > 0 and no dampening
  bool bf16_states = false;    // momentum in bf16, as AdamWOptions::bf16_states; needs momentum > 0
  bool master_weights = true;  // for 16-bit values, see optimizer.h
  std::vector<ParameterGroup> groups = {};
};

using SGD = FlatOptimizer<SGDOptions>;
extern template class FlatOptimizer<SGDOptions>;

}  // namespace reigen::optim
