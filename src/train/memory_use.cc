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

ModelSize size_of(const torch::nn::Module& module, const OptimConfig& optim) {
  ModelSize size;
  for (const at::Tensor& parameter : module.parameters()) {
    if (!parameter.requires_grad()) {
      size.frozen += bytes_of(parameter);
      continue;
    }
    const auto element = static_cast<std::int64_t>(parameter.element_size());
    const std::int64_t of_state = optim.bf16_states ? std::int64_t{2} : element;
    const std::int64_t of_average = optim.ema_decay > 0 ? element : 0;
    size.weights += bytes_of(parameter);
    size.states += parameter.numel() * (of_state * states_of(optim) + of_average);
  }
  return size;
}

Division division_of(const parallel::DataParallelOptions& how, const Communicator& world) {
  if (world.size() == 1) return {};
  const bool in_part = how.mesh && how.mesh->has("dp_shard");
  const Communicator sharers = in_part ? how.mesh->along("dp_shard") : world;
  return {.shard = how.shard,
          .ranks = sharers.size(),
          .common = how.shard != parallel::Shard::kNone && sharers.size() > 1 && sharers.backend() == "shared_memory",
          .has_replicas = sharers.size() < world.size()};
}

bool makes_beside_shares(const Division& division) {
  const bool stay = division.common && !division.has_replicas;
  return division.shard == parallel::Shard::kParameters || (division.shard == parallel::Shard::kGradients && !stay);
}

GivenToCheckpoint given_to_checkpoint(const ModelSize& model, const Division& division) {
  const std::int64_t trained = model.weights + model.states;
  if (division.shard == parallel::Shard::kNone) return {.by_first = trained + model.frozen};
  if (division.shard != parallel::Shard::kParameters) {
    return {.by_each = trained / division.ranks, .by_first = model.frozen};
  }
  return {.by_each = (trained + model.frozen) / division.ranks};
}

MemoryUse formula(const ModelSize& model, const Division& division) {
  using parallel::Shard;
  const bool divides_all = division.shard == Shard::kParameters;
  const bool divides_gradients = makes_beside_shares(division);
  const int of_weights = divides_all || division.common ? division.ranks : 1;
  return {.parameters = model.weights / of_weights + model.frozen / (divides_all ? division.ranks : 1),
          .gradients = model.weights / (divides_gradients ? division.ranks : 1),
          .optimizer = model.states / (division.shard != Shard::kNone ? division.ranks : 1)};
}

MemoryUse in_memory(MemoryUse use, const Division& division) {
  use.optimizer = 0;
  if (division.shard == parallel::Shard::kParameters || division.common) use.parameters = 0;
  return use;
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
