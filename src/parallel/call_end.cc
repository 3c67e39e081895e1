#include "parallel/call_end.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

namespace reigen::parallel {
namespace {

using torch::autograd::variable_list;

class CallEnd : public torch::autograd::Node {
 public:
  CallEnd(torch::autograd::edge_list&& next, std::function<void()> comes)
      : torch::autograd::Node(std::move(next)), comes_(std::move(comes)) {}

  std::string name() const override { return "ReigenCallEnd"; }
  variable_list apply(variable_list&& gradients) override {
    comes_();
    return std::move(gradients);
  }

 private:
  std::function<void()> comes_;
};

}  // namespace

nn::Carry with_end(nn::Carry output, std::function<void()> comes) {
  if (!at::GradMode::is_enabled()) return output;
  const auto wants_gradient = [](const at::Tensor& tensor) { return tensor.defined() && tensor.requires_grad(); };
  variable_list inner;
  std::copy_if(output.begin(), output.end(), std::back_inserter(inner), wants_gradient);
  if (inner.empty()) return output;
  const std::shared_ptr<CallEnd> node(new CallEnd(torch::autograd::collect_next_edges(inner), std::move(comes)),
                                      torch::autograd::deleteNode);
  for (at::Tensor& tensor : output) {
    if (!wants_gradient(tensor)) continue;
    tensor = tensor.detach();  // the same memory, and the same count of what is written into it
    torch::autograd::set_history(tensor, node);
  }
  return output;
}

}  // namespace reigen::parallel
