// RMSprop, as torch::optim::RMSprop defines it. Tieleman and Hinton, lecture 6e of
// https://www.cs.toronto.edu/~tijmen/csc321/slides/lecture_slides_lec6.pdf; with the option centered: Graves,
// https://arxiv.org/abs/1308.0850
//
//   auto optimizer = reigen::optim::RMSprop(parallel.parameters(), {.lr = 1e-2});
//
// p is a parameter and g its gradient. v is an optimizer state; so are a (with centered) and b (with momentum):
//   g += weight_decay·p
//   v = alpha·v + (1 - alpha)·g²
//   d = g / (sqrt(v) + eps)           (centered: a = alpha·a + (1 - alpha)·g, and v - a² in place of v)
//   p -= lr·d                         (momentum: b = momentum·b + d; p -= lr·b)
// If rounding makes v - a² negative, it counts as 0; torch::optim computes NaN in this case.
// Thread rule: one thread at a time may use an optimizer.
#pragma once

#include "reigen/config/optimizers.h"
#include "reigen/optim/flat_optimizer.h"

namespace reigen::optim {

using RMSprop = FlatOptimizer<RMSpropOptions>;
extern template class FlatOptimizer<RMSpropOptions>;

}  // namespace reigen::optim
