// Adagrad, as torch::optim::Adagrad defines it. Duchi, Hazan and Singer, https://jmlr.org/papers/v12/duchi11a.html
//
//   auto optimizer = reigen::optim::Adagrad(parallel.parameters(), {.lr = 1e-2});
//
//   g += weight_decay·p
//   s += g²                                (starts at initial_accumulator_value)
//   p -= lr / (1 + (t - 1)·lr_decay) · g / (sqrt(s) + eps)
// Sums only grow, so no bf16 state: it would stop growing at 256 times a step's square.
// Thread rule: one thread at a time.
#pragma once

#include <vector>

#include "reigen/optim/flat_optimizer.h"

namespace reigen::optim {

// State: "<parameter>.sum" and ".step". Memory: the values once.
struct AdagradOptions {
  double lr = 1e-2;                      // at least 0
  double lr_decay = 0;                   // at least 0
  double weight_decay = 0;               // at least 0
  double initial_accumulator_value = 0;  // at least 0
  double eps = 1e-10;                    // above 0
  bool master_weights = true;            // for 16-bit values, see optimizer.h
  std::vector<ParameterGroup> groups = {};
};

using Adagrad = FlatOptimizer<AdagradOptions>;
extern template class FlatOptimizer<AdagradOptions>;

}  // namespace reigen::optim
