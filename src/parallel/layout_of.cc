#include "reigen/parallel/layout_of.h"

#include <torch/nn/module.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/name_patterns.h"
#include "parallel/check/option_checks.h"
#include "parallel/data_ranks.h"
#include "reigen/base/bytes.h"
#include "reigen/tensor/flat_parameters.h"
#include "tensor/stored_type.h"

namespace reigen::parallel {
namespace {

using layout::kNoUnit;
using Modules = std::set<const torch::nn::Module*>;

Modules with_inner_ones(const torch::nn::Module& module) {
  Modules result{&module};
  for (const auto& inner : module.modules(/*include_self=*/false)) result.insert(inner.get());
  return result;
}

// Returns, for each parameter, the innermost unit that contains all modules that hold the parameter. If a module
// outside of the unit holds the parameter too (tied weights), the parameter belongs to no unit, because that module may
// read the parameter while the unit does not run.
std::map<const at::TensorImpl*, std::size_t> innermost_units(const torch::nn::Module& model,
                                                             const std::vector<nn::Unit>& units) {
  std::map<const at::TensorImpl*, Modules> owners;
  for (const torch::nn::Module* module : with_inner_ones(model)) {
    for (const at::Tensor& parameter : module->parameters(/*recurse=*/false)) {
      owners[parameter.unsafeGetTensorImpl()].insert(module);
    }
  }
  std::vector<Modules> inside;
  for (const nn::Unit& unit : units) inside.push_back(with_inner_ones(unit.module()));
  const auto within = [&](const Modules& a, std::size_t b) {
    return std::includes(inside[b].begin(), inside[b].end(), a.begin(), a.end());
  };
  std::map<const at::TensorImpl*, std::size_t> result;
  for (std::size_t i = 0; i < units.size(); ++i) {
    for (const at::Tensor& parameter : units[i].parameters()) {
      const at::TensorImpl* const tensor = parameter.unsafeGetTensorImpl();
      if (!within(owners[tensor], i)) continue;
      const auto [place, is_new] = result.emplace(tensor, i);
      if (is_new || place->second == i || place->second == kNoUnit) continue;
      const bool is_inner = within(inside[i], place->second);
      const bool is_outer = within(inside[place->second], i);
      // If both are true, two units have the same module. Either unit may run, so the parameter belongs to no unit.
      if (is_inner) place->second = is_outer ? kNoUnit : i;
      if (!is_inner && !is_outer) place->second = kNoUnit;
    }
  }
  return result;
}

}  // namespace

LayoutInputs layout_inputs(const torch::nn::Module& module, const Communicator& world,
                           const DataParallelOptions& options) {
  LayoutInputs inputs;
  const DataRanks ranks = data_ranks(options, world);
  inputs.choices.axes = ranks.axes;
  if (options.tensor_parallel) inputs.choices.splits = options.tensor_parallel.splits();
  inputs.machine.has_model_on_gpu = device_of_weights(options.pipeline ? options.pipeline.module() : module).is_cuda();
  inputs.machine.shares_memory = ranks.groups.sharers.shares_memory() && !inputs.machine.has_model_on_gpu;
  inputs.choices.sharding = options.shard;
  inputs.choices.buckets = static_cast<bool>(options.strategy);
  inputs.choices.offload = !options.offload.empty();
  inputs.choices.reshard_after_forward = options.reshard_after_forward;
  // A size that is out of range or NaN counts as 0 here. Afterwards check_options() refuses it with the option's name.
  const bool in_range = options.bucket_mb >= 0 && options.bucket_mb <= kLargestBucketMb;
  inputs.choices.group_bytes =
      in_range ? static_cast<std::size_t>(options.bucket_mb * static_cast<double>(kMiB)) : std::size_t{0};
  if (options.gather_type) inputs.choices.gather_type = tensor::stored_type("gather_type", *options.gather_type);
  if (options.reduce_type) inputs.choices.reduce_type = tensor::stored_type("reduce_type", *options.reduce_type);
  for (const nn::Unit& unit : options.units) inputs.model.units.push_back(unit.name());
  const auto unit_of = innermost_units(module, options.units);
  for (const tensor::NamedParameter& entry : tensor::named_parameters(module)) {
    layout::TensorSpec& spec = inputs.model.tensors.emplace_back(tensor::spec_of(entry));
    const auto found = unit_of.find(entry.parameter.unsafeGetTensorImpl());
    if (found != unit_of.end()) spec.unit = found->second;
    spec.optimizer = base::list_of(spec.name, spec.aliases, options.optimizers);
    if (inputs.choices.splits.contains(spec.name)) spec.shape = options.tensor_parallel.whole_shape(spec.name);
    if (!options.pipeline) continue;
    const layout::TensorSpec& placed = options.pipeline.parameters()[inputs.model.tensors.size() - 1];
    spec.stage = placed.stage;
    spec.copies = placed.copies;
  }
  return inputs;
}

}  // namespace reigen::parallel
