// Makes a differentiable function of tensors from a pair of functions.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace reigen::tensor {

using TensorFunction = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>;

// True if autograd records operations on these tensors.
bool wants_gradient(const std::vector<at::Tensor>& tensors);

// Returns forward(inputs). Where a gradient is wanted, backward(gradients of the results) returns the gradients of the
// inputs; it gets zeros for results that nobody used. The functions that backward calls may be differentiable
// themselves.
std::vector<at::Tensor> apply_differentiable(const std::vector<at::Tensor>& inputs, const TensorFunction& forward,
                                             const TensorFunction& backward);

}  // namespace reigen::tensor
