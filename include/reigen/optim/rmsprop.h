// RMSprop, as torch::optim::RMSprop defines it. Tieleman and Hinton, lecture 6e of
// https://www.cs.toronto.edu/~tijmen/csc321/slides/lecture_slides_lec6.pdf; centered: Graves,
// https://arxiv.org/abs/1308.0850
//
//   auto optimizer = reigen::optim::RMSprop(parallel.parameters(), {.lr = 1e-2});
//
// p is a parameter, g its gradient; v, and a and b where they are used, are states:
//   g += weight_decay·p
//   v = alpha·v + (1 - alpha)·g²
//   d = g / (sqrt(v) + eps)           (centered: a = alpha·a + (1 - alpha)·g, and v - a² in place of v)
//   p -= lr·d                         (momentum: b = momentum·b + d; p -= lr·b)
// v - a² counts as 0 where rounding makes it negative; torch::optim gives NaN there.
// Thread rule: one thread at a time.
#pragma once

#include "reigen/config/optimizers.h"
#include "reigen/optim/flat_optimizer.h"

namespace reigen::optim {

using RMSprop = FlatOptimizer<RMSpropOptions>;
extern template class FlatOptimizer<RMSpropOptions>;

}  // namespace reigen::optim
