// AdamW: Adam with decoupled weight decay. Loshchilov and Hutter, https://arxiv.org/abs/1711.05101
//
//   auto optimizer = reigen::optim::AdamW(parallel.parameters(), {.lr = 1e-3});
//
//   p -= lr·weight_decay·p
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
struct AdamWOptions {
  double lr = 1e-3;                             // at least 0
  std::pair<double, double> betas{0.9, 0.999};  // each in [0, 1)
  double eps = 1e-8;                            // above 0
  double weight_decay = 1e-2;                   // at least 0
  bool amsgrad = false;                         // divide by the largest v so far; one more state tensor
  // m and v in bf16: the memory of one fp32 copy of the values instead of two. For fp32 values, without amsgrad.
  // Rounded at random, because to nearest v would stand still: one step changes it by a 1000th, bf16 tells 256ths
  // apart. The random bits follow from parameter, element and step, so runs and resumes stay bitwise equal.
  bool bf16_states = false;
  bool master_weights = true;  // for 16-bit values, see optimizer.h
  std::vector<ParameterGroup> groups = {};
};

using AdamW = FlatOptimizer<AdamWOptions>;
extern template class FlatOptimizer<AdamWOptions>;

}  // namespace reigen::optim
