#include "parallel/pipeline/split_backward.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <functional>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace reigen::parallel {

using torch::autograd::AccumulateGrad;
using torch::autograd::Edge;
using torch::autograd::Node;

// A node of the trunk, and the weights that hang on it.
struct SplitBackward::Start {
  std::shared_ptr<Node> node;
  std::vector<std::shared_ptr<Node>> weights;     // their AccumulateGrad
  torch::autograd::variable_list gradients = {};  // that arrived at the node
};

namespace {

// Keeps the gradients that arrive at a node.
class KeepGradients : public torch::autograd::FunctionPreHook {
 public:
  explicit KeepGradients(std::function<void(const torch::autograd::variable_list&)> keep) : keep_(std::move(keep)) {}
  torch::autograd::variable_list operator()(const torch::autograd::variable_list& gradients) override {
    keep_(gradients);
    return gradients;
  }

 private:
  std::function<void(const torch::autograd::variable_list&)> keep_;
};

using Nodes = std::unordered_set<Node*>;

// The nodes from which a backward that begins at `roots` reaches one of `ends`.
Nodes trunk_between(const std::vector<std::shared_ptr<Node>>& roots, const std::vector<std::shared_ptr<Node>>& inputs) {
  Nodes ends;
  for (const std::shared_ptr<Node>& input : inputs) ends.insert(input.get());
  std::unordered_map<Node*, bool> reaches;  // of nodes that were visited to their end
  Nodes trunk;
  struct Visit {
    Node* node;
    std::size_t next = 0;
    bool found = false;
  };
  for (const std::shared_ptr<Node>& root : roots) {
    if (reaches.contains(root.get())) continue;
    std::vector<Visit> path{{root.get()}};
    while (!path.empty()) {
      Visit& at = path.back();
      if (at.next < at.node->num_outputs()) {
        Node* const child = at.node->next_edge(at.next++).function.get();
        if (child == nullptr) continue;
        if (const auto known = reaches.find(child); known != reaches.end()) {
          at.found = at.found || known->second;
        } else {
          path.push_back({child});
        }
        continue;
      }
      const bool found = at.found || ends.contains(at.node);
      reaches[at.node] = found;
      if (found) trunk.insert(at.node);
      path.pop_back();
      if (!path.empty()) path.back().found = path.back().found || found;
    }
  }
  return trunk;
}

// The AccumulateGrad of the weights that a backward from `node` reaches without the trunk.
std::vector<std::shared_ptr<Node>> weights_on(Node* node, const Nodes& trunk) {
  std::vector<std::shared_ptr<Node>> weights;
  Nodes seen;
  std::vector<Node*> open{node};
  while (!open.empty()) {
    Node* const at = open.back();
    open.pop_back();
    for (const Edge& edge : at->next_edges()) {
      Node* const child = edge.function.get();
      if (child == nullptr || trunk.contains(child) || !seen.insert(child).second) continue;
      if (dynamic_cast<AccumulateGrad*>(child) != nullptr) weights.push_back(edge.function);
      open.push_back(child);
    }
  }
  return weights;
}

}  // namespace

SplitBackward::SplitBackward(const nn::Carry& outputs, const nn::Carry& gradients, const nn::Carry& inputs) {
  if (outputs.empty()) return;
  if (inputs.empty()) {
    torch::autograd::backward(outputs, gradients);
    return;
  }
  // The pointers keep nodes that LibTorch makes for leaf tensors when somebody asks for them.
  std::vector<std::shared_ptr<Node>> tops, ends;
  for (const at::Tensor& output : outputs) tops.push_back(torch::autograd::impl::gradient_edge(output).function);
  for (const at::Tensor& input : inputs) ends.push_back(torch::autograd::impl::gradient_edge(input).function);
  const Nodes trunk = trunk_between(tops, ends);
  std::unordered_map<Node*, int> hangs_on;  // how many nodes of the trunk a weight hangs on
  nn::Carry first = inputs;                 // the tensors that the first part computes gradients of
  std::unordered_set<Node*> taken;
  const auto take = [&](const std::shared_ptr<Node>& weight) {
    if (taken.insert(weight.get()).second) first.push_back(static_cast<AccumulateGrad&>(*weight).variable);
  };
  Nodes reached;
  std::vector<std::shared_ptr<Node>> open = tops;
  while (!open.empty()) {
    const std::shared_ptr<Node> at = open.back();
    open.pop_back();
    if (!trunk.contains(at.get()) || !reached.insert(at.get()).second) continue;
    if (auto weights = weights_on(at.get(), trunk); !weights.empty()) {
      for (const auto& weight : weights) ++hangs_on[weight.get()];
      starts_.push_back(std::make_shared<Start>(Start{at, std::move(weights)}));
    }
    for (const Edge& edge : at->next_edges()) {
      if (edge.function) open.push_back(edge.function);
    }
  }
  // Weights of outputs that no input reaches hang on no node of the trunk.
  for (const std::shared_ptr<Node>& top : tops) {
    if (trunk.contains(top.get())) continue;
    if (dynamic_cast<AccumulateGrad*>(top.get()) != nullptr) take(top);
    for (const auto& weight : weights_on(top.get(), trunk)) take(weight);
  }
  for (const std::shared_ptr<Start>& start : starts_) {
    std::erase_if(start->weights, [&](const std::shared_ptr<Node>& weight) {
      if (hangs_on[weight.get()] == 1 && !taken.contains(weight.get())) return false;
      take(weight);
      return true;
    });
  }
  std::erase_if(starts_, [](const std::shared_ptr<Start>& start) { return start->weights.empty(); });
  for (const std::shared_ptr<Start>& start : starts_) {
    start->node->add_pre_hook(std::make_unique<KeepGradients>(
        [weak = std::weak_ptr<Start>(start)](const torch::autograd::variable_list& arrived) {
          if (const auto alive = weak.lock()) alive->gradients = arrived;
        }));
  }
  torch::autograd::backward(outputs, gradients, /*retain_graph=*/true, /*create_graph=*/false, first);
  outputs_ = outputs;
}

SplitBackward::SplitBackward(SplitBackward&&) noexcept = default;
SplitBackward& SplitBackward::operator=(SplitBackward&&) noexcept = default;
SplitBackward::~SplitBackward() = default;

void SplitBackward::weights() {
  for (const std::shared_ptr<Start>& start : starts_) {
    torch::autograd::edge_list roots, ends;
    torch::autograd::variable_list gradients;
    for (std::size_t i = 0; i < start->gradients.size(); ++i) {
      if (!start->gradients[i].defined()) continue;
      roots.emplace_back(start->node, static_cast<std::uint32_t>(i));
      gradients.push_back(start->gradients[i]);
    }
    start->gradients.clear();
    if (roots.empty()) continue;  // no gradient came to this node
    for (const std::shared_ptr<Node>& weight : start->weights) ends.emplace_back(weight, 0);
    // The hooks of this node have seen these gradients in the first part. They must not change them a second time.
    start->node->tensor_pre_hooks().clear();
    start->node->pre_hooks().clear();
    torch::autograd::Engine::get_default_engine().execute(roots, gradients, /*keep_graph=*/false,
                                                          /*create_graph=*/false, /*accumulate_grad=*/true, ends);
  }
  starts_.clear();
  outputs_.clear();
}

}  // namespace reigen::parallel
