// Adam, as torch::optim::Adam defines it. Kingma and Ba, https://arxiv.org/abs/1412.6980
//
//   auto optimizer = reigen::optim::Adam(parallel.parameters(), {.lr = 1e-3});
//
//   g += weight_decay·p                (an L2 term in the loss; AdamW decays the weights themselves)
//   m = beta1·m + (1 - beta1)·g        v = beta2·v + (1 - beta2)·g²
//   p -= lr / (1 - beta1^t) · m / (sqrt(v / (1 - beta2^t)) + eps)
// Thread rule: one thread at a time.
#pragma once

#include <utility>
#include <vector>

#include "reigen/optim/flat_optimizer.h"

namespace reigen::optim {

// State: "<parameter>.exp_avg", ".exp_avg_sq", (amsgrad: ".max_exp_avg_sq") and ".step". Memory: two (three) times the
// values.
struct AdamOptions {
  double lr = 1e-3;                             // at least 0
  std::pair<double, double> betas{0.9, 0.999};  // each in [0, 1)
  double eps = 1e-8;                            // above 0
  double weight_decay = 0;                      // at least 0
  bool amsgrad = false;                         // divide by the largest v so far; one more state tensor
  bool bf16_states = false;                     // as AdamWOptions::bf16_states
  bool master_weights = true;                   // for 16-bit values, see optimizer.h
  std::vector<ParameterGroup> groups = {};
};

using Adam = FlatOptimizer<AdamOptions>;
extern template class FlatOptimizer<AdamOptions>;

}  // namespace reigen::optim
