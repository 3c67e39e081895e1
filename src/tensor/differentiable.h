// Makes a differentiable function of tensors from a forward function and a backward function.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace reigen::tensor {

using TensorFunction = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>;

// True if autograd records operations on these tensors.
bool wants_gradient(const std::vector<at::Tensor>& tensors);

// Returns forward(inputs). If a gradient is wanted, autograd later passes the gradients of the results to `backward`,
// and `backward` returns the gradients of the inputs. For a result that nobody used, `backward` gets zeros. `backward`
// may itself call differentiable functions.
std::vector<at::Tensor> apply_differentiable(const std::vector<at::Tensor>& inputs, const TensorFunction& forward,
                                             const TensorFunction& backward);

// The same for a backward that needs the inputs. They are kept as LibTorch's own operations keep theirs: freed by the
// backward, and checked for changes in place. `backward` gets the gradients of the results, then the inputs.
// An input that requires no gradient, or whose gradient this backward does not ask for, comes to it detached.
using BackwardFunction =
    std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&, const std::vector<at::Tensor>&)>;
std::vector<at::Tensor> apply_keeping_inputs(const std::vector<at::Tensor>& inputs, const TensorFunction& forward,
                                             const BackwardFunction& backward);

}  // namespace reigen::tensor
