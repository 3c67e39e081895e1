// LARS: momentum SGD whose rate is set layer by layer. You, Gitman and Ginsburg, Large Batch Training of Convolutional
// Networks, https://arxiv.org/abs/1708.03888, algorithm 1
//
//   auto optimizer = reigen::optim::LARS(parallel.parameters(), {.lr = 8, .groups = {reigen::optim::no_decay()}});
//
//   r = trust_coefficient·‖p‖ / (‖g‖ + weight_decay·‖p‖)      for each parameter p with its gradient g
//   b = momentum·b + lr·r·(g + weight_decay·p)
//   p -= b
// r = 1 where a norm is 0, and in groups with adapt = false (biases and norms, as the authors' code has it). b carries
// the rate of its time, so a change of lr acts with the momentum's delay. A parameter must lie in its range whole.
// Two passes: the norms (fp64, the same bits for any number of threads), then the step.
// Thread rule: one thread at a time.
#pragma once

#include <vector>

#include "reigen/optim/flat_optimizer.h"

namespace reigen::optim {

// State: "<parameter>.momentum" and ".step". Memory: the values once.
struct LARSOptions {
  double lr = 1;                     // at least 0
  double momentum = 0.9;             // at least 0
  double weight_decay = 0;           // at least 0; the paper: 5e-4
  double trust_coefficient = 0.001;  // above 0
  bool master_weights = true;        // for 16-bit values, see optimizer.h
  std::vector<ParameterGroup> groups = {};
};

using LARS = FlatOptimizer<LARSOptions>;
extern template class FlatOptimizer<LARSOptions>;

}  // namespace reigen::optim
