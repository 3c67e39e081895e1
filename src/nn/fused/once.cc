#include "nn/fused/once.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/functions/utils.h>

#include <memory>
#include <string>
#include <utility>

namespace reigen::nn::fused {

namespace {

using torch::autograd::variable_list;

class NoSecondDerivative : public torch::autograd::Node {
 public:
  NoSecondDerivative(torch::autograd::edge_list edges, Report report)
      : Node(std::move(edges)), report_(std::move(report)) {}
  std::string name() const override { return "ReigenNoSecondDerivative"; }
  variable_list apply(variable_list&&) override { throw InvalidArgument(report_); }

 private:
  Report report_;
};

}  // namespace

void refuse_second_derivatives(const variable_list& gradients, const variable_list& on, const Report& report,
                               torch::autograd::edge_list edges) {
  bool is_differentiable = at::GradMode::is_enabled() && !edges.empty();
  for (const at::Tensor& tensor : on) {
    if (!tensor.defined() || !torch::autograd::compute_requires_grad(tensor)) continue;
    is_differentiable = true;
    // The node gets edges to all these tensors. Without these edges torch::autograd::grad() would not visit the node,
    // because it visits only nodes that lead to the given inputs.
    edges.push_back(torch::autograd::impl::gradient_edge(tensor));
  }
  if (!is_differentiable) return;
  const auto refusal = std::shared_ptr<NoSecondDerivative>(new NoSecondDerivative(std::move(edges), report),
                                                           torch::autograd::deleteNode);
  for (const at::Tensor& gradient : gradients) {
    if (gradient.defined()) torch::autograd::set_history(gradient, refusal);
  }
}

}  // namespace reigen::nn::fused
