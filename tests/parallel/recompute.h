// A node of somebody else's that runs a backward within the backward, as activation checkpointing does, and tells
// nobody.
#pragma once

#include <cstdint>
#include <functional>

#include "harness/torch.h"

namespace reigen::testing_oracle {

// Computes its part of the model again inside of backward.
struct Recompute : torch::autograd::Function<Recompute> {
  using Part = std::function<at::Tensor(const at::Tensor&)>;  // lives until backward is over; given by its address
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
