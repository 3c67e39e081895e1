// RMSprop, as torch::optim::RMSprop defines it. Tieleman and Hinton, lecture 6e of
// https://www.cs.toronto.edu/~tijmen/csc321/slides/lecture_slides_lec6.pdf; centered: Graves,
// https://arxiv.org/abs/1308.0850
//
//   auto optimizer = reigen::optim::RMSprop(parallel.parameters(), {.lr = 1e-2});
//
//   g += weight_decay·p
//   v = alpha·v + (1 - alpha)·g²
//   d = g / (sqrt(v) + eps)           (centered: a = alpha·a + (1 - alpha)·g, and v - a² in place of v)
//   p -= lr·d                         (momentum: b = momentum·b + d; p -= lr·b)
// v - a² counts as 0 where rounding makes it negative, for which torch::optim gives NaN.
// Thread rule: one thread at a time.
#pragma once

#include <vector>

#include "reigen/optim/flat_optimizer.h"

namespace reigen::optim {

// State: "<parameter>.square_avg", (centered: ".grad_avg"), (with momentum: ".momentum_buffer") and ".step". Memory:
// the values one to three times.
struct RMSpropOptions {
  double lr = 1e-2;            // at least 0
  double alpha = 0.99;         // in [0, 1)
  double eps = 1e-8;           // above 0
  double weight_decay = 0;     // at least 0
  double momentum = 0;         // at least 0; 0 keeps no buffer
  bool centered = false;       // divide by the standard deviation instead of the root mean square
  bool master_weights = true;  // for 16-bit values, see optimizer.h
  std::vector<ParameterGroup> groups = {};
};

using RMSprop = FlatOptimizer<RMSpropOptions>;
extern template class FlatOptimizer<RMSpropOptions>;

}  // namespace reigen::optim
