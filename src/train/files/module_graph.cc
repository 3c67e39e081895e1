#include <torch/nn/module.h>

#include <algorithm>
#include <sstream>

#include "train/files/summary_values.h"

namespace reigen::train {
namespace {

// TensorBoard takes '/' for the border between a scope and what is in it.
std::string scope_of(const std::string& path, const std::string& in_it) {
  std::string scope = path;
  std::replace(scope.begin(), scope.end(), '.', '/');
  return scope.empty() ? in_it : scope + "/" + in_it;
}

std::string text_of(const torch::nn::Module& module) {
  std::ostringstream text;
  module.pretty_print(text);
  return text.str();
}

}  // namespace

std::string class_of(const torch::nn::Module& module) {
  std::string name = module.name();
  name = name.substr(0, name.find('<'));  // the arguments of a template may have a "::" of their own
  if (const std::size_t end = name.rfind("::"); end != std::string::npos) name = name.substr(end + 2);
  if (name.size() > 4 && name.ends_with("Impl")) name.resize(name.size() - 4);
  return name;
}

std::vector<format::GraphNode> graph_of(
    const torch::nn::Module& module, const std::vector<nn::Unit>& units,
    const std::function<std::vector<std::int64_t>(const std::string& name, const at::Tensor& own)>& shape_of) {
  std::vector<format::GraphNode> nodes;
  std::string before;  // the node of the unit before
  for (const nn::Unit& unit : units) {
    format::GraphNode node{.name = scope_of(unit.name(), class_of(unit.module())), .op = class_of(unit.module())};
    if (!before.empty()) node.inputs.push_back(before);
    before = node.name;
    nodes.push_back(std::move(node));
  }
  const auto visit = [&](const std::string& path, const torch::nn::Module& one) {
    std::vector<std::string> own;
    std::int64_t elements = 0;
    const auto add = [&](const auto& tensors, const char* op) {
      for (const auto& tensor : tensors) {
        const std::string name = path.empty() ? tensor.key() : path + "." + tensor.key();
        const std::vector<std::int64_t> shape =
            shape_of ? shape_of(name, tensor.value()) : tensor.value().sizes().vec();
        nodes.push_back({.name = scope_of(path, tensor.key()), .op = op, .shape = shape});
        own.push_back(nodes.back().name);
        if (op[0] == 'B') continue;
        std::int64_t size = 1;
        for (const std::int64_t length : shape) size *= length;
        elements += size;
      }
    };
    add(one.named_parameters(/*recurse=*/false), "Parameter");
    add(one.named_buffers(/*recurse=*/false), "Buffer");
    const std::string name = scope_of(path, class_of(one));
    auto node = std::find_if(nodes.begin(), nodes.end(), [&](const auto& other) { return other.name == name; });
    const bool is_scope_only = own.empty() && !one.children().empty();
    if (node == nodes.end()) {
      if (is_scope_only) return;
      node = nodes.insert(nodes.end(), {.name = name, .op = class_of(one)});
    }
    node->inputs.insert(node->inputs.end(), own.begin(), own.end());
    node->attributes = {{"module", text_of(one)}, {"parameters", elements}};
  };
  visit("", module);  // named_modules() gives the module itself only if a shared_ptr holds it
  for (const auto& item : module.named_modules("", /*include_self=*/false)) visit(item.key(), *item.value());
  return nodes;
}

}  // namespace reigen::train
