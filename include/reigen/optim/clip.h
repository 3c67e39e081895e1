// Norm, check and clipping of gradients. One pass reads the gradients, and no pass writes them: the optimizer's step
// applies the factor.
//
//   const auto norm = reigen::optim::gradient_norm(parallel.parameters());
//   if (!norm.finite) ...                                                          // skip the step, or end the run
//   optimizer.step({.gradient_factor = reigen::optim::clip_factor(norm.norm, 1.0)});
//
// If the loss was multiplied by a scale S, the true norm is norm.norm / S, and the factor is clip_factor(norm.norm / S,
// c) / S. After a data-parallel backward every rank has the same gradients, so every rank computes the same bits
// without communication. Where each rank has only its share of the mean gradients (Shard::kGradients, kParameters),
// gradient_norm, clip_grad_norm and clip_grad_value are collective: every rank calls them, and they throw as a barrier
// does. If ranks average gradients only in the optimizer's step (kGradients on one machine), gradient_norm averages
// them first. LibTorch's own clipping does not work where ranks have only shares.
// Thread rule: as for the gradients, one thread at a time.
#pragma once

#include <vector>

#include "reigen/tensor/parameter_range.h"

namespace reigen::optim {

struct GradientNorm {
  double norm = 0;            // sqrt(sum_of_squares); 0 without gradients
  bool finite = true;         // no element is infinite or NaN (in fp64 also none beyond 1e154: its square is infinite)
  double sum_of_squares = 0;  // sums of the parts of a model may be added up
};

// norm = sqrt(sum of g² over all elements of all gradients). The sum is computed in fp64 in a fixed order, so it has
// the same bits for any number of threads and every instruction set. One pass reads the gradients. A gradient that is
// sparse, strided or of another type is first copied to its place in the range.
GradientNorm gradient_norm(const std::vector<ParameterRange>& ranges);

// min(1, max_norm / (norm + 1e-6)), as in torch::nn::utils::clip_grad_norm_; NaN if the norm is NaN. Throws
// InvalidArgument unless max_norm is above 0.
double clip_factor(double norm, double max_norm);

// For optimizers that are not from reigen::optim: these functions change the gradients in place. clip_grad_norm() makes
// a second pass if the factor is below 1, and returns the norm before clipping.
GradientNorm clip_grad_norm(const std::vector<ParameterRange>& ranges, double max_norm);
// g = clamp(g, -clip_value, clip_value). Throws InvalidArgument unless clip_value is above 0.
void clip_grad_value(const std::vector<ParameterRange>& ranges, double clip_value);

}  // namespace reigen::optim
