#include "tensor/differentiable.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <utility>

namespace reigen::tensor {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The forward and backward functions that apply_differentiable() gets, in one object that the autograd graph can keep.
struct Pair : torch::CustomClassHolder {
  Pair(TensorFunction its_forward, TensorFunction its_backward)
      : forward(std::move(its_forward)), backward(std::move(its_backward)) {}
  TensorFunction forward;
  TensorFunction backward;
};

struct Apply : torch::autograd::Function<Apply> {
  static variable_list forward(AutogradContext* context, at::TensorList inputs, const c10::intrusive_ptr<Pair>& pair) {
    context->saved_data["pair"] = c10::IValue::make_capsule(pair);
    return pair->forward(inputs.vec());
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto capsule = context->saved_data["pair"].toCapsule();
    variable_list result = static_cast<Pair&>(*capsule).backward(gradients);
    result.emplace_back();  // no gradient for `pair`
    return result;
  }
};

struct KeepingPair : torch::CustomClassHolder {
  KeepingPair(TensorFunction its_forward, BackwardFunction its_backward)
      : forward(std::move(its_forward)), backward(std::move(its_backward)) {}
  TensorFunction forward;
  BackwardFunction backward;
};

struct ApplyKeeping : torch::autograd::Function<ApplyKeeping> {
  static variable_list forward(AutogradContext* context, at::TensorList inputs,
                               const c10::intrusive_ptr<KeepingPair>& pair) {
    context->saved_data["pair"] = c10::IValue::make_capsule(pair);
    context->save_for_backward(inputs.vec());
    return pair->forward(inputs.vec());
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto capsule = context->saved_data["pair"].toCapsule();
    variable_list inputs = context->get_saved_variables();
    // A backward may ask for some gradients only. The others are those of tensors that require none.
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (!context->needs_input_grad(i)) inputs[i] = inputs[i].detach();
    }
    variable_list result = static_cast<KeepingPair&>(*capsule).backward(gradients, inputs);
    result.emplace_back();  // no gradient for `pair`
    return result;
  }
};

}  // namespace

bool wants_gradient(const std::vector<at::Tensor>& tensors) {
  return at::GradMode::is_enabled() &&
         std::any_of(tensors.begin(), tensors.end(), [](const at::Tensor& one) { return one.requires_grad(); });
}

std::vector<at::Tensor> apply_differentiable(const std::vector<at::Tensor>& inputs, const TensorFunction& forward,
                                             const TensorFunction& backward) {
  if (!wants_gradient(inputs)) return forward(inputs);
  return Apply::apply(at::TensorList(inputs), c10::make_intrusive<Pair>(forward, backward));
}

std::vector<at::Tensor> apply_keeping_inputs(const std::vector<at::Tensor>& inputs, const TensorFunction& forward,
                                             const BackwardFunction& backward) {
  if (!wants_gradient(inputs)) return forward(inputs);
  return ApplyKeeping::apply(at::TensorList(inputs), c10::make_intrusive<KeepingPair>(forward, backward));
}

}  // namespace reigen::tensor
