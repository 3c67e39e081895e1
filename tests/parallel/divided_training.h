// A model with every kind of weight that ranks may shard, and its training.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "harness/torch.h"
#include "parallel/oracle.h"
#include "reigen/nn/activation_checkpoint.h"
#include "reigen/nn/unit.h"
#include "reigen/optim/clip.h"
#include "reigen/optim/ema.h"
#include "reigen/optim/lamb.h"

namespace reigen::parallel::testing_divided {

using namespace testing_oracle;  // NOLINT: the vocabulary of these tests

struct Layer : torch::nn::Module {
  Layer(int in, int hidden, int out, const at::Tensor& tie = {}) {
    up = register_module("up", torch::nn::Linear(in, hidden));
    down = register_module("down", torch::nn::Linear(hidden, out));
    if (tie.defined()) tied = register_parameter("tied", tie);
  }
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor y = down(torch::tanh(up(x)));
    return tied.defined() ? y * tied : y;
  }
  torch::nn::Linear up{nullptr}, down{nullptr};
  at::Tensor tied;
};

// Its units are larger and smaller than a block. Two units have a weight in common. Further weights are of no unit: one
// of another type, frozen ones, and ones that no loss reaches.
struct Net : torch::nn::Module {
  explicit Net(at::ScalarType type = at::kFloat, bool has_unused = true) : type_(type) {
    const auto add = [&](const char* name, int hidden, const at::Tensor& tie = {}) {
      list.emplace_back(name, register_module(name, std::make_shared<Layer>(33, hidden, 33, tie)));
    };
    const at::Tensor tied = torch::ones({33}, type);
    add("first", 701, tied);
    add("second", 5);
    add("third", 40, tied);
    add("fourth", 640);
    add("fifth", 300);
    if (has_unused) unused = register_module("unused", torch::nn::Linear(5, 5));
    frozen = register_module("frozen", torch::nn::Linear(33, 33));
    fill(*this, type);
    // With large weights, rounding errors would become large in few steps.
    for (at::Tensor parameter : parameters()) {
      const at::NoGradGuard no_grad;
      if (parameter.dim() == 2) parameter.mul_(2 / std::sqrt(static_cast<double>(parameter.size(1))));
    }
    for (auto& parameter : frozen->parameters()) parameter.set_requires_grad(false);
    for (auto& entry : named_parameters()) {
      const bool is_frozen = entry.key() == "third.up.weight" || entry.key().rfind("fourth.", 0) == 0;
      if (is_frozen) entry.value().set_requires_grad(false);
    }
    torch::NoGradGuard no_grad;
    scale = register_parameter("scale", torch::full({33}, 1.25, at::TensorOptions(at::kDouble).device(here)));
  }
  at::Tensor forward(const at::Tensor& x) { return nn::fold(list, frozen(x.to(type_)) * 0.1).to(at::kDouble) * scale; }
  std::vector<nn::Unit> units() const { return list; }

  std::vector<nn::Unit> list;
  torch::nn::Linear unused{nullptr}, frozen{nullptr};
  at::Tensor scale;

 private:
  at::ScalarType type_;
};

struct Way {
  Shard shard = Shard::kNone;
  bool units = true;
  bool reshard = true;
  int replicas = 1;
  int reshard_to = 0;
};

inline DataParallelOptions options_of(const Way& way, Net& model, const Communicator& world) {
  DataParallelOptions options{
      .bucket_mb = 0.05, .shard = way.shard, .reshard_after_forward = way.reshard, .reshard_to = way.reshard_to};
  if (way.units) options.units = model.units();
  if (way.replicas > 1) options.mesh = Mesh(world, {{"dp_replicate", way.replicas}, {"dp_shard", mesh::kRest}});
  return options;
}

struct Case {
  const char* name;
  MakeOptimizer make;
  at::ScalarType type = at::kFloat;
  int accumulates = 1;
  bool recomputes = false;
  bool clips = false;
};

inline const auto kAdamW = maker<optim::AdamW>(optim::AdamWOptions{.lr = 0.01});

inline const std::vector<Case> kCases{
    {"sgd", maker<optim::SGD>(optim::SGDOptions{.lr = 0.1, .momentum = 0.9})},
    {"adamw", kAdamW},
    {"lamb", maker<optim::LAMB>(optim::LAMBOptions{.lr = 0.01, .weight_decay = 0.01})},
    {"adamw in bf16", kAdamW, at::kBFloat16},
    {"masters", maker<optim::AdamW>(optim::AdamWOptions{.lr = 0.01, .master_weights = true}), at::kBFloat16},
    {"accumulation", kAdamW, at::kFloat, 3},
    {"activations computed again", kAdamW, at::kFloat, 1, true},
    {"both, fp64", kAdamW, at::kDouble, 2, true},
    {"clipping", kAdamW, at::kFloat, 1, false, true},
};

// The whole tensor, put together from the parts of all ranks.
inline at::Tensor whole(const optim::NamedTensor& entry, Communicator& world, int replicas) {
  if (!entry.is_divided()) return entry.tensor.clone().cpu();
  at::Tensor sum = torch::zeros(entry.tensor.sizes(), at::kDouble);
  if (entry.part->count > 0) {
    sum.view({-1})
        .narrow(0, entry.part->first, entry.part->count)
        .copy_(entry.tensor.reshape({-1}).narrow(0, entry.part->first, entry.part->count));
  }
  world.all_reduce(sum.data_ptr(), sum.data_ptr(), static_cast<std::size_t>(sum.numel()), DataType::kFloat64,
                   ReduceOp::kSum);
  return (sum / replicas).to(entry.tensor.scalar_type());
}

inline at::Tensor loss_of(const at::Tensor& output) { return output.square().mean(); }

inline at::Tensor input_of(std::uint64_t seed, const Communicator& world) {
  return share(numbers(seed, {24, 33}), world);
}

inline Tensors train(Communicator& world, const Case& one, const Way& way, int steps = 4) {
  Net model(one.type);
  std::optional<nn::ActivationCheckpoint> checkpoint;
  if (one.recomputes) checkpoint.emplace(nn::activation_checkpoint(model.units()));
  auto parallel = data_parallel(model, world, options_of(way, model, world));
  const auto optimizer = one.make(parallel.parameters());
  optim::ExponentialMovingAverage average(parallel.parameters(), {.decay = 0.9});
  for (int step = 0; step < steps; ++step) {
    for (int i = 0; i < one.accumulates; ++i) {
      std::optional<NoSync> only_adds_up;
      if (i + 1 < one.accumulates) only_adds_up.emplace(parallel.no_sync());
      loss_of(parallel(input_of(static_cast<std::uint64_t>(step * 10 + i), world))).backward();
    }
    optim::StepOptions how;
    if (one.clips) how.gradient_factor = optim::clip_factor(optim::gradient_norm(parallel.parameters()).norm, 0.2);
    if (one.clips && step == 1) optim::clip_grad_norm(parallel.parameters(), 0.1);
    if (one.clips && step == 2) optim::clip_grad_value(parallel.parameters(), 0.01);
    how.check_finite = step == 1;
    optimizer->step(how);
    optimizer->zero_grad();
    average.update();
    if (step != 2) continue;
    const auto swapped = average.swap_in();  // like a validation in the middle
    const at::NoGradGuard no_grad;
    parallel(input_of(99, world));
  }
  parallel.gather_weights();
  Tensors result = values_of(model);
  // The order of the ranges follows the units, so it depends on the sharding.
  std::map<std::string, at::Tensor> states;
  for (const auto& entry : optimizer->state()) states[entry.name] = whole(entry, world, way.replicas);
  for (const auto& entry : average.state()) states[entry.name] = whole(entry, world, way.replicas);
  for (const auto& [name, state] : states) result.push_back(state);
  return result;
}

inline Tensors agreed_over(const std::string& backend, int ranks,
                           const std::function<Tensors(Communicator&)>& function) {
  return agreed(ranks, function, backend);
}

// The distance relative to the largest element of each tensor, because second moments are large here.
inline double relative_distance(const Tensors& a, const Tensors& b) {
  double largest = a.size() == b.size() ? 0 : std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    if (a[i].numel() == 0) continue;
    const double size = std::max(1.0, a[i].to(at::kDouble).abs().max().item<double>());
    const double one = distance({a[i]}, {b[i]}) / size;
    if (!std::isfinite(one)) return std::numeric_limits<double>::infinity();
    largest = std::max(largest, one);
  }
  return largest;
}

}  // namespace reigen::parallel::testing_divided
