// A function of tensors and its gradient, as a pair of functions.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace reigen::tensor {

using TensorFunction = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>;

// True if autograd follows what is done with them.
bool wants_gradient(const std::vector<at::Tensor>& tensors);

// forward(inputs). Where a gradient is wanted, backward(gradients of the results) gives those of the inputs, zeros for
// results that nobody used; what it calls may be differentiable itself.
std::vector<at::Tensor> apply_differentiable(const std::vector<at::Tensor>& inputs, const TensorFunction& forward,
                                             const TensorFunction& backward);

}  // namespace reigen::tensor
