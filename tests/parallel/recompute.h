// A node of other code that runs an inner backward, like activation checkpointing, but does not announce it to Reigen.
#pragma once

#include <cstdint>
#include <functional>

#include "harness/torch.h"

namespace reigen::testing_oracle {

// Recomputes its part of the model in backward.
struct Recompute : torch::autograd::Function<Recompute> {
  using Part = std::function<at::Tensor(const at::Tensor&)>;  // must live until backward ends; passed by its address
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x, std::int64_t part) {
    context->save_for_backward({x});
    context->saved_data["part"] = part;
    return (*reinterpret_cast<Part*>(part))(x);
  }
  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext* context,
                                               const torch::autograd::tensor_list& gradients) {
    const auto part = context->saved_data["part"].toInt();
    const at::Tensor x = context->get_saved_variables()[0].detach().requires_grad_();
    at::AutoGradMode grad_mode(true);
    const at::Tensor y = (*reinterpret_cast<Part*>(part))(x);
    y.backward(gradients[0]);
    return {x.grad(), at::Tensor()};
  }
};

}  // namespace reigen::testing_oracle
