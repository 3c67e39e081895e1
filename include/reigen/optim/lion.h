// Lion: the sign of a momentum. Chen et al., Symbolic Discovery of Optimization Algorithms,
// https://arxiv.org/abs/2302.06675, program 1
//
//   auto optimizer = reigen::optim::Lion(parallel.parameters(), {.lr = 1e-4, .weight_decay = 0.1});
//
//   c = beta1·m + (1 - beta1)·g
//   p -= lr·(sign(c) + weight_decay·p)
//   m = beta2·m + (1 - beta2)·g
// Every element moves by lr: take a third to a tenth of AdamW's lr, and a weight decay as many times larger (section
// 5 of the paper). sign(0) = 0.
// Thread rule: one thread at a time.
#pragma once

#include <utility>
#include <vector>

#include "reigen/optim/flat_optimizer.h"

namespace reigen::optim {

// State: "<parameter>.exp_avg" and ".step". Memory: the values once, half of AdamW's.
struct LionOptions {
  double lr = 1e-4;                            // at least 0
  std::pair<double, double> betas{0.9, 0.99};  // each in [0, 1)
  double weight_decay = 0;                     // decoupled; at least 0
  bool bf16_states = false;                    // m in bf16, as AdamWOptions::bf16_states
  bool master_weights = true;                  // for 16-bit values, see optimizer.h
  std::vector<ParameterGroup> groups = {};
};

using Lion = FlatOptimizer<LionOptions>;
extern template class FlatOptimizer<LionOptions>;

}  // namespace reigen::optim
