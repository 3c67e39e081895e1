// Computes the norm of gradients, checks whether they are finite, and clips them. gradient_norm() reads the gradients
// in one pass. No extra pass writes them: the optimizer's step multiplies each gradient by the clip factor.
//
//   const auto norm = reigen::optim::gradient_norm(parallel.parameters());
//   if (!norm.finite) ...                                                          // skip the step, or end the run
//   optimizer.step({.gradient_factor = reigen::optim::clip_factor(norm.norm, 1.0)});
//
// If the loss was multiplied by a scale S, the true norm is norm.norm / S. The factor for a limit c is then
// clip_factor(norm.norm / S, c) / S. After a data-parallel backward every rank has the same gradients, so every rank
// computes the same bits without communication. With Shard::kGradients or kParameters each rank has only its share of
// the mean gradients. In this case gradient_norm(), clip_grad_norm() and clip_grad_value() are collective: every rank
// must call them, and they throw the errors of Communicator::barrier(). With kGradients on one machine, backward leaves
// gradients that are not averaged; these functions then average them first. LibTorch's own clipping does not work with
// kGradients and kParameters.
// Thread rule: one thread at a time may call the functions, and only while no other code uses the gradients.
#pragma once

#include <vector>

#include "reigen/tensor/parameter_range.h"

namespace reigen::optim {

struct GradientNorm {
  double norm = 0;            // sqrt(sum_of_squares); 0 if there are no gradients
  bool finite = true;         // false if an element is NaN or infinite, or above 1e154 in fp64 (its square overflows)
  double sum_of_squares = 0;  // to get the norm of a whole model, add up this number over its parts
};

// norm = sqrt(sum of g² over all elements of all gradients). The sum is computed in fp64 in a fixed order, so it has
// the same bits for any number of threads and every instruction set. One pass reads the gradients. A gradient that is
// sparse, not contiguous, or of another type than its parameter is first copied to its place in the range's flat
// buffer.
GradientNorm gradient_norm(const std::vector<ParameterRange>& ranges);

// min(1, max_norm / (norm + 1e-6)), as in torch::nn::utils::clip_grad_norm_; NaN if the norm is NaN. Throws
// InvalidArgument unless max_norm is above 0.
double clip_factor(double norm, double max_norm);

// clip_grad_norm() and clip_grad_value() are for optimizers that are not from reigen::optim. They change the gradients
// in place. clip_grad_norm() makes a second pass over the gradients if the clip factor is below 1. It returns the norm
// before clipping.
GradientNorm clip_grad_norm(const std::vector<ParameterRange>& ranges, double max_norm);
// For every gradient g: g = clamp(g, -clip_value, clip_value). Throws InvalidArgument unless clip_value is above 0.
void clip_grad_value(const std::vector<ParameterRange>& ranges, double clip_value);

}  // namespace reigen::optim
