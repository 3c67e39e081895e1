#include "parallel/pipeline/stages.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <set>

#include "reigen/tensor/flat_parameters.h"
#include "tensor/hooks/intercept.h"
#include "tensor/memory/away_memory.h"

namespace reigen::parallel {
namespace {

// Returns the module at the path ("a.b"), and makes the modules that are missing.
torch::nn::Module& module_at(torch::nn::Module& root, std::string_view path) {
  torch::nn::Module* at = &root;
  while (!path.empty()) {
    const std::string part(path.substr(0, path.find('.')));
    const auto children = at->named_children();
    if (const auto* const found = children.find(part)) {
      at = found->get();
    } else {
      at = at->register_module(part, std::make_shared<torch::nn::Module>()).get();
    }
    path = part.size() == path.size() ? std::string_view() : path.substr(part.size() + 1);
  }
  return *at;
}

std::pair<std::string, std::string> split_name(const std::string& path) {
  const auto dot = path.rfind('.');
  if (dot == std::string::npos) return {"", path};
  return {path.substr(0, dot), path.substr(dot + 1)};
}

}  // namespace

InvalidArgument refused_by_pipeline(const std::string& what, const std::string& got, const std::string& expected,
                                    const std::string& fix) {
  return InvalidArgument(Report{.what = "[pipeline] " + what, .got = got, .expected = expected, .fix = fix});
}

Stages::Stages(torch::nn::Module& model, std::vector<nn::Unit> units, std::vector<std::size_t> first_units,
               std::vector<int> placement, int here)
    : units_(std::move(units)), first_units_(std::move(first_units)), placement_(std::move(placement)), here_(here) {
  const auto modules = model.named_modules(/*name_prefix=*/"", /*include_self=*/false);
  std::set<std::string> names;
  for (const nn::Unit& unit : units_) {
    const bool is_free = names.insert(unit.name()).second && !unit.has(nn::Layer::kStage);
    if (!is_free) {
      throw refused_by_pipeline("a unit has a place in a pipeline already", "unit " + unit.name(),
                                "each unit once, in one pipeline", "keep the first pipeline, or make a new model");
    }
    const auto* const found = modules.find(unit.name());
    if (found != nullptr && found->get() == &unit.module()) continue;
    throw refused_by_pipeline("a unit is not at its place in the model", "unit " + unit.name(),
                              "the name under which the model registered the unit's module",
                              "correct the name of the unit");
  }
  std::map<const void*, std::shared_ptr<std::vector<int>>> coordinates_of;
  for (const auto& item : model.named_parameters())
    note(item.key(), coordinates_of[item.value().unsafeGetTensorImpl()]);
  for (const auto& item : model.named_buffers()) note(item.key(), coordinates_of[item.value().unsafeGetTensorImpl()]);
  for (const tensor::NamedParameter& entry : tensor::named_parameters(model)) {
    layout::TensorSpec& spec = parameters_.emplace_back(tensor::spec_of(entry));
    const std::vector<int>& coordinates = *held_.at(entry.name).coordinates;
    spec.stage = coordinates.front();
    spec.copies.assign(coordinates.begin() + 1, coordinates.end());
  }
  make_module(model);
}

std::pair<std::size_t, std::size_t> Stages::units_of(int stage) const {
  const auto s = static_cast<std::size_t>(stage);
  return {first_units_[s], s + 1 < first_units_.size() ? first_units_[s + 1] : units_.size()};
}

// The unit in which the name lies; units_.size() if there is none.
std::size_t Stages::unit_of(const std::string& name) const {
  for (std::size_t i = 0; i < units_.size(); ++i) {
    const std::string& unit = units_[i].name();
    if (name.size() > unit.size() && name.starts_with(unit) && name[unit.size()] == '.') return i;
  }
  return units_.size();
}

int Stages::stage_of(std::size_t unit) const {
  const auto next = std::upper_bound(first_units_.begin(), first_units_.end(), unit);
  return static_cast<int>(next - first_units_.begin()) - 1;
}

int Stages::coordinate_of(std::size_t unit) const { return placement_[static_cast<std::size_t>(stage_of(unit))]; }

bool Stages::trains_in(int stage) const {
  const auto [first, end] = units_of(stage);
  for (std::size_t i = first; i < end; ++i) {
    for (const at::Tensor& parameter : units_[i].parameters()) {
      if (parameter.requires_grad()) return true;
    }
  }
  return false;
}

// Enters a name of the tensor whose `coordinates` are given: null for its first name.
void Stages::note(const std::string& name, std::shared_ptr<std::vector<int>>& coordinates) {
  const std::size_t unit = unit_of(name);
  if (unit == units_.size()) {
    throw refused_by_pipeline("a parameter or buffer belongs to no unit of the model", name,
                              "a name that begins with a unit's name",
                              "make the module that uses it a unit, or a part of one");
  }
  const int coordinate = coordinate_of(unit);
  if (!coordinates) coordinates = std::make_shared<std::vector<int>>();
  if (std::find(coordinates->begin(), coordinates->end(), coordinate) == coordinates->end()) {
    coordinates->push_back(coordinate);
  }
  held_[name] = {.coordinates = coordinates, .giver = coordinate};
}

bool Stages::is_here(const Held& held) const {
  return std::find(held.coordinates->begin(), held.coordinates->end(), here_) != held.coordinates->end();
}

void Stages::make_module(const torch::nn::Module& model) {
  module_ = std::make_shared<torch::nn::Module>();
  std::set<std::string> there;
  const auto add = [&](std::size_t i) {
    if (!there.insert(units_[i].name()).second) return;
    const auto [path, last] = split_name(units_[i].name());
    module_at(*module_, path).register_module(last, units_[i].module().shared_from_this());
  };
  for (const tensor::NamedParameter& entry : tensor::named_parameters(model)) {
    if (!is_here(held_.at(entry.name))) continue;
    const std::size_t unit = unit_of(entry.name);
    if (coordinate_of(unit) == here_) {
      add(unit);
      continue;
    }
    const auto [path, last] = split_name(entry.name);
    module_at(*module_, path).register_parameter(last, entry.parameter, entry.parameter.requires_grad());
  }
  for (std::size_t i = 0; i < units_.size(); ++i) {
    if (coordinate_of(i) == here_) add(i);
  }
}

bool Stages::trains(int coordinate) const {
  return std::any_of(parameters_.begin(), parameters_.end(), [&](const layout::TensorSpec& spec) {
    const bool is_copy = std::find(spec.copies.begin(), spec.copies.end(), coordinate) != spec.copies.end();
    return spec.trainable && (spec.stage == coordinate || is_copy);
  });
}

// The tensor of which `name` is the name, or to which a state of this name belongs.
const Stages::Held* Stages::find(std::string_view name) const {
  while (true) {
    if (const auto found = held_.find(name); found != held_.end()) return &found->second;
    const auto dot = name.rfind('.');
    if (dot == std::string_view::npos) return nullptr;
    name = name.substr(0, dot);
  }
}

bool Stages::is_elsewhere(std::string_view name) const {
  const Held* const held = find(name);
  return held != nullptr && !is_here(*held);
}

bool Stages::gives(std::string_view name) const {
  const Held* const held = find(name);
  return held != nullptr ? held->giver == here_ : here_ == 0;
}

std::map<std::vector<int>, std::vector<layout::TensorSpec>> Stages::tied() const {
  std::map<std::vector<int>, std::vector<layout::TensorSpec>> result;
  for (const layout::TensorSpec& spec : parameters_) {
    if (spec.copies.empty()) continue;
    std::vector<int> coordinates{spec.stage};
    coordinates.insert(coordinates.end(), spec.copies.begin(), spec.copies.end());
    std::sort(coordinates.begin(), coordinates.end());
    result[coordinates].push_back(spec);
  }
  return result;
}

void Stages::free_others(torch::nn::Module& model) const {
  const tensor::Uncaught whole(tensor::Where::kUse);  // the weights may be divided (parallelize())
  const auto free = [this](const std::string& name, at::Tensor tensor) {
    if (is_here(held_.at(name)) || tensor::is_away(tensor)) return;
    tensor.mutable_grad() = at::Tensor();
    tensor.set_data(tensor::away_tensor(tensor.sizes(), tensor.scalar_type(), tensor.device()));
  };
  for (const auto& item : model.named_parameters()) free(item.key(), item.value());
  for (const auto& item : model.named_buffers()) free(item.key(), item.value());
}

}  // namespace reigen::parallel
