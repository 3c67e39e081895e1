#include "train/memory_use.h"

#include <fmt/format.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "reigen/base/bytes.h"

namespace reigen::train {
namespace {

constexpr std::int64_t MemoryUse::*kParts[] = {&MemoryUse::parameters, &MemoryUse::gradients,   &MemoryUse::optimizer,
                                               &MemoryUse::buffers,    &MemoryUse::activations, &MemoryUse::step};

std::int64_t bytes_of(const at::Tensor& tensor) { return static_cast<std::int64_t>(tensor.nbytes()); }

std::int64_t bytes_of_values(const ParameterRange& range) {
  const bool in_part = range.is_common() || range.share().values == tensor::Values::kGathered;
  return bytes_of(in_part ? range.own_part(range.values()) : range.values());
}

std::int64_t bytes_of_gradients(const ParameterRange& range) {
  if (range.share().made) return bytes_of(range.own_part(range.gradients()));
  if (range.share().gradients.defined()) return bytes_of(range.share().gradients.select(0, 0));
  return bytes_of(range.gradients());
}

// Tensors of as many elements as the weights that an optimizer keeps.
std::int64_t states_of(const OptimConfig& optim) {
  const bool has_momentum = optim.momentum.value_or(optim.name == "lars" ? 0.9 : 0) > 0;
  if (optim.name == "adamw" || optim.name == "adam") return optim.amsgrad ? 3 : 2;
  if (optim.name == "lamb") return 2;
  if (optim.name == "sgd" || optim.name == "lars") return has_momentum ? 1 : 0;
  if (optim.name == "rmsprop") return 1 + (has_momentum ? 1 : 0) + (optim.centered ? 1 : 0);
  return 1;
}

}  // namespace

MemoryUse count_memory(const torch::nn::Module& module, const parallel::DataParallelBase& parallel,
                       const Optimization& optimization) {
  MemoryUse use;
  std::set<const at::TensorImpl*> in_ranges;
  for (const ParameterRange& range : parallel.weights()) {
    use.parameters += bytes_of_values(range);
    for (const tensor::Segment& segment : range.segments()) in_ranges.insert(segment.parameter.unsafeGetTensorImpl());
  }
  for (const at::Tensor& parameter : module.parameters()) {
    if (!in_ranges.contains(parameter.unsafeGetTensorImpl())) use.parameters += bytes_of(parameter);
  }
  std::map<std::string, std::int64_t> in_common;  // parameters whose states ranks have once: elements of this one
  for (const ParameterRange& range : parallel.parameters()) {
    use.gradients += bytes_of_gradients(range);
    if (!range.is_common()) continue;
    for (const tensor::Segment& segment : range.segments()) {
      const tensor::Held held = range.held(segment);
      in_common[segment.name] = held.last - held.first;
    }
  }
  for (const tensor::NamedTensor& state : optimization.state()) {
    const auto elements = [&] {
      if (state.is_divided()) return state.last - state.first;
      const auto found = in_common.find(state.name.substr(0, state.name.rfind('.')));
      return found != in_common.end() && state.tensor.numel() > 1 ? found->second : state.tensor.numel();
    };
    use.optimizer += elements() * static_cast<std::int64_t>(state.tensor.element_size());
  }
  for (const at::Tensor& buffer : module.buffers()) use.buffers += bytes_of(buffer);
  return use;
}

ModelSize size_of(std::int64_t elements, std::int64_t element_bytes, const OptimConfig& optim) {
  const std::int64_t state_bytes = optim.bf16_states ? std::int64_t{2} : element_bytes;
  const std::int64_t average_bytes = optim.ema_decay > 0 ? element_bytes : 0;
  return {.weights = elements * element_bytes, .states = elements * (state_bytes * states_of(optim) + average_bytes)};
}

MemoryUse formula(const ModelSize& model, const Division& division) {
  using parallel::Shard;
  const bool divides_states = division.shard != Shard::kNone;
  const bool divides_gradients =
      division.shard == Shard::kParameters || (division.shard == Shard::kGradients && !division.common);
  const bool divides_weights = division.shard == Shard::kParameters || (divides_states && division.common);
  return {.parameters = model.weights / (divides_weights ? division.ranks : 1),
          .gradients = model.weights / (divides_gradients ? division.ranks : 1),
          .optimizer = model.states / (divides_states ? division.ranks : 1)};
}

MemoryUse predict_memory(const parallel::DataParallelBase& parallel, const OptimConfig& optim) {
  ModelSize model;
  Division division{.shard = parallel.shard()};
  for (const ParameterRange& range : parallel.parameters()) {
    model = model + size_of(range.numel(), static_cast<std::int64_t>(range.values().element_size()), optim);
    if (range.is_divided()) division.ranks = range.share().ranks->size();
    division.common = range.is_common();
  }
  return formula(model, division);
}

MemoryReport gather_memory(const MemoryUse& own, const MemoryUse& formula, Communicator& world) {
  constexpr std::size_t kCount = std::size(kParts);
  std::vector<std::int64_t> mine, all(kCount * static_cast<std::size_t>(world.size()));
  for (const auto part : kParts) mine.push_back(own.*part);
  world.all_gather(mine.data(), all.data(), kCount, DataType::kInt64, {.tag = "memory"}).wait();
  MemoryReport report{.ranks = std::vector<MemoryUse>(static_cast<std::size_t>(world.size())), .formula = formula};
  for (std::size_t i = 0; i < all.size(); ++i) report.ranks[i / kCount].*kParts[i % kCount] = all[i];
  return report;
}

std::string to_text(const MemoryReport& report) {
  const auto most = [&](std::int64_t MemoryUse::*part) {
    std::int64_t bytes = 0;
    for (const MemoryUse& use : report.ranks) bytes = std::max(bytes, use.*part);
    return format_bytes(static_cast<std::uint64_t>(std::max<std::int64_t>(bytes, 0)));
  };
  const auto told = [&](std::int64_t MemoryUse::*part) {
    return fmt::format("{} (formula {})", most(part), format_bytes(static_cast<std::uint64_t>(report.formula.*part)));
  };
  return fmt::format("parameters {}, gradients {}, optimizer {}, buffers {}, activations {}, step {}",
                     told(&MemoryUse::parameters), told(&MemoryUse::gradients), told(&MemoryUse::optimizer),
                     most(&MemoryUse::buffers), most(&MemoryUse::activations), most(&MemoryUse::step));
}

}  // namespace reigen::train
