#include "parallel/weights/call_end.h"

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

class EndNode : public torch::autograd::Node {
 public:
  EndNode(torch::autograd::edge_list&& next, std::function<void()> comes)
      : torch::autograd::Node(std::move(next)), comes_(std::move(comes)) {}

  std::string name() const override { return "ReigenCallEnd"; }
  variable_list apply(variable_list&& gradients) override {
    comes_();
    return std::move(gradients);
  }

 private:
  std::function<void()> comes_;
};

at::Tensor base_of(const at::Tensor& tensor) { return tensor.is_view() ? at::Tensor(tensor._base()) : tensor; }

// Whether a tensor outside of the call may have the same memory.
bool is_shared(const at::Tensor& tensor, std::size_t place, const nn::Carry& input, const nn::Carry& output) {
  const auto has_its_memory = [&](const at::Tensor& other) { return other.defined() && other.is_alias_of(tensor); };
  if (base_of(tensor).is_leaf() || std::any_of(input.begin(), input.end(), has_its_memory)) return true;
  for (std::size_t i = 0; i < output.size(); ++i) {
    if (i != place && has_its_memory(output[i])) return true;
  }
  return false;
}

// A tensor with the same memory and the same version counter; LibTorch refuses writes to it.
at::Tensor read_only(const at::Tensor& tensor) {
  using torch::autograd::CreationMeta;
  return torch::autograd::make_variable_differentiable_view(
      tensor.variable_data(), torch::autograd::ViewInfo(base_of(tensor), nullptr, nullptr), std::nullopt,
      /*shared_view_info=*/false, CreationMeta::IN_CUSTOM_FUNCTION);
}

}  // namespace

CallEnd with_end(const nn::Carry& input, nn::Carry output, std::function<void()> comes) {
  if (!at::GradMode::is_enabled()) return {.output = std::move(output), .node = {}};
  const auto wants_gradient = [](const at::Tensor& tensor) { return tensor.defined() && tensor.requires_grad(); };
  variable_list inner;
  std::copy_if(output.begin(), output.end(), std::back_inserter(inner), wants_gradient);
  if (inner.empty()) return {.output = std::move(output), .node = {}};
  const std::shared_ptr<EndNode> node(new EndNode(torch::autograd::collect_next_edges(inner), std::move(comes)),
                                      torch::autograd::deleteNode);
  nn::Carry result = output;
  for (std::size_t i = 0; i < output.size(); ++i) {
    if (!wants_gradient(output[i])) continue;
    result[i] = is_shared(output[i], i, input, output) ? read_only(output[i]) : output[i].detach();
    torch::autograd::set_history(result[i], node);
  }
  return {.output = std::move(result), .node = node};
}

}  // namespace reigen::parallel
