// Weights for which LibTorch's operations are replaced when a forward uses them (Where::kUse of intercept.h). A
// function that computes with the memory of a weight itself, and not by LibTorch's operations, asks here first.
//
// Thread rule: any thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

namespace reigen::tensor {

// From now on the weight is taken over, until it is destroyed. `what` is for the code that replaces the operations; it
// must not be null.
void take_over(const at::Tensor& weight, std::shared_ptr<const void> what);
// The `what` of the weight; null if it is not taken over. A view of a weight is another tensor.
std::shared_ptr<const void> taken_over(const at::Tensor& weight);
inline bool is_taken_over(const at::Tensor& weight) { return taken_over(weight) != nullptr; }

// The weight as a function must use it that reads its memory: the result of an operation of LibTorch that changes
// nothing, which is replaced if the weight is taken over. Undefined for an undefined weight.
at::Tensor used(const at::Tensor& weight);

}  // namespace reigen::tensor
