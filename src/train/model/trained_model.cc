#include "train/model/trained_model.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <string_view>

#include "reigen/comm/call_list.h"
#include "reigen/nn/unit_policy.h"
#include "reigen/nn/without_memory.h"
#include "reigen/parallel/layout_of.h"
#include "reigen/tensor/data_type.h"
#include "reigen/tensor/pieces.h"
#include "tensor/calls.h"
#include "tensor/memory/away_memory.h"
#include "train/model/activations.h"
#include "train/model/device.h"
#include "train/model/divide_model.h"
#include "train/model/memory_fit.h"
#include "train/model/parallel_options.h"
#include "train/model/verify_before_training.h"
#include "train/optimizer/own_optimizer.h"
#include "train/run/agree.h"

namespace reigen::train {

namespace {

// Prefix of the names of the strategy's tensors in a checkpoint. No module has such a name.
constexpr std::string_view kOfStrategy = "//strategy/";

bool is_without_memory(const torch::nn::Module& module) {
  const std::vector<at::Tensor> parameters = module.parameters();
  return std::any_of(parameters.begin(), parameters.end(), nn::has_no_memory);
}

// The task makes the model and chooses the type of its weights. Without this check, fp32 instead of fp64 would go
// unnoticed.
void require_precision(const torch::nn::Module& module, const std::string& precision) {
  if (precision != "fp64") return;
  for (const auto& item : module.named_parameters()) {
    const at::ScalarType type = item.value().scalar_type();
    if (type == at::kDouble || !item.value().is_floating_point()) continue;
    throw InvalidArgument(Report{.what = "train.precision fp64: the task's model is of another type",
                                 .got = fmt::format("{} is {}", item.key(), at::toString(type)),
                                 .expected = "Double",
                                 .fix = "where config.train.precision is fp64, module().to(at::kDouble) and data of "
                                        "doubles in the task; or leave train.precision out"});
  }
}

// Makes the model's fp32 matrices, convolutions and tables bf16. Weights with one dimension (biases, those of norms)
// are small and remain fp32.
void make_bf16(torch::nn::Module& module) {
  for (at::Tensor parameter : module.parameters()) {
    if (parameter.scalar_type() != at::kFloat || parameter.dim() < 2) continue;
    std::optional<nn::WithoutMemory> without;
    if (nn::has_no_memory(parameter)) without.emplace();
    parameter.set_data(parameter.detach().to(at::kBFloat16));
  }
}

// Returns a function that runs body() and throws a plain Error in place of InvalidArgument. make() marks every
// InvalidArgument that wrap() throws as common to all ranks, but body() may fail on one rank alone.
std::function<void()> alone(std::function<void()> body) {
  return [body = std::move(body)] {
    try {
      body();
    } catch (const InvalidArgument& error) {
      throw Error(error.exit_code(), error.what());
    }
  };
}

// Returns the tensors of the module. Tensors without memory get an empty part of the whole tensor, so nothing is read
// into them.
std::vector<tensor::NamedTensor> those_with_memory(const torch::nn::Module& module,
                                                   const parallel::TensorParallel& divided) {
  std::vector<tensor::NamedTensor> tensors = tensor::tensors_of(module);
  for (tensor::NamedTensor& item : tensors) {
    if (!nn::has_no_memory(item.tensor)) continue;
    item.shape = divided.divides(item.name) ? divided.whole_shape(item.name) : item.tensor.sizes().vec();
    item.part = layout::flat_part(item.shape, 0, 0);
  }
  return tensors;
}

// Moves the model to the device. Tensors without memory are without memory there.
void move(torch::nn::Module& module, const at::Device& device) {
  const nn::WithoutMemory stay_without;
  module.to(device);
}

// After a rollback the model is on the GPU, and some of its weights may be away. Puts it where it was when it was made:
// on the host, without memory for the weights if it was made without.
void bring_back(torch::nn::Module& module, bool without_memory) {
  for (at::Tensor parameter : module.parameters()) {
    if (without_memory)
      parameter.set_data(tensor::away_tensor(parameter.sizes(), parameter.scalar_type()));
    else if (nn::has_no_memory(parameter))
      parameter.set_data(at::empty(parameter.sizes(), parameter.options().requires_grad(false).device(at::kCPU)));
  }
  move(module, at::kCPU);
}

}  // namespace

void TrainedModel::make(const Start& start) {
  if (run_.device.is_cuda() && run_.rollbacks > 0) bring_back(module(), without_memory_);
  if (run_.device.is_cuda()) move(module(), at::kCPU);  // initial values are set in memory of the host
  together(run_.world, "model", [&] {
    require_precision(module(), run_.config.train.precision);
    require_divided(run_.parts, module());
    if (run_.config.train.weights == "bf16") make_bf16(module());
    const RunConfig& config = run_.config.run;
    if (!config.weights.empty() && start.from == nullptr)
      first_weights_.emplace(weights_path_of(config), run_.task.module(), config.strict);
    without_memory_ = is_without_memory(module());
    if (!without_memory_) set_values(start);
  });
  if (first_weights_ && !first_weights_->differences().empty())
    run_.say(fmt::format("note: run.strict false: {}", first_weights_->differences()));
  activations_ = checkpoint_activations(run_.task, run_.name(), run_.config.train);
  if (run_.config.train.verify > 0 && run_.rollbacks == 0 && !run_.mesh) {
    run_.say(verify_before_training(run_, start.samples_per_step));
  }
  try {
    wrap(start);
  } catch (InvalidArgument& error) {
    error.mark_common();  // models and options were compared, so every rank throws this error
    throw;
  }
  first_weights_.reset();
  settled_ = start.from != nullptr;  // a loaded state is equal on all ranks
  if (start.from == nullptr) return;
  together(run_.world, "optimizer", [&] { load_state(start); });
}

void TrainedModel::set_values(const Start& start) {
  if (start.from != nullptr)
    tensor::read_into(*start.from, "model", those_with_memory(module(), divided_), pipeline_.elsewhere());
  else
    run_.task.initialize(static_cast<std::uint64_t>(run_.config.train.seed));
  if (first_weights_) first_weights_->read_into(those_with_memory(module(), divided_));
}

void TrainedModel::wrap(const Start& start) {
  const Config& config = run_.config;
  const std::int64_t samples = (start.global_batch + run_.data.size() - 1) / run_.data.size();
  // With stages only those of this rank go to the GPU, except that mesh.cut time measures all there.
  const bool measures = config.mesh.pp > 1 && config.mesh.cut == "time";
  if (run_.device.is_cuda() && (config.mesh.pp == 1 || measures)) move(module(), run_.device);
  parallel::DataParallelOptions how =
      data_parallel_options(config.parallel, run_.data, run_.device, run_.mesh.has_value());
  how.units = run_.task.units();
  for (const PartOptimizer& part : run_.parts) how.optimizers.push_back(part.parameters);
  if (config.mesh.tp > 1) {
    divided_ = how.tensor_parallel = divide_layers(run_);
    run_.task.divide(how.tensor_parallel);
  }
  if (config.mesh.cp > 1) context_ = how.context_parallel = divide_sequences(run_);
  if (config.mesh.pp > 1) {
    const std::int64_t micro = config.train.micro_batch;
    pipeline_ = how.pipeline = divide_stages(run_, samples, micro_batches_of_file_);
    if (run_.device.is_cuda()) move(module(), run_.device);
    if (micro == 0 || micro >= samples) {
      run_.say(
          fmt::format("note: each rank has 1 micro-batch, so the {} ranks of mesh.pp work one after the other; set "
                      "train.micro_batch below {}",
                      config.mesh.pp, samples));
    }
  }
  if (config.parallel.unit_size > 0) how.units = nn::units_of_size(how.units, config.parallel.unit_size);
  if (without_memory_) how.initialize = alone([&] { set_values(start); });
  parallel::LayoutInputs inputs = parallel::layout_inputs(run_.task.module(), run_.world, how);
  inputs.choices.states = states_of(run_);
  const layout::Layout layout = inputs.choose();
  mesh_.clear();
  for (const layout::Axis& axis : layout.axes()) mesh_.emplace_back(axis.name, axis.size);
  memory_ = formula(layout, layout.coordinates_of(run_.world.rank()));
  const layout::Layout one = layout::choose(inputs.model, {.states = inputs.choices.states}, {});
  memory_alone_ = formula(one, one.coordinates_of(0));
  // After a rollback there is no check: the memory of the old wrapper may not be free yet, so it would be counted
  // twice.
  if (run_.rollbacks == 0) {
    require_room(module(), inputs, config, samples, run_.world, [&] { return available_on(run_.device); });
    if (const std::int64_t pinned =
            layout.bytes(layout::Role::kState, layout.coordinates_of(run_.world.rank()), layout::Medium::kPinned);
        run_.device.is_cuda() && !config.parallel.offload.empty()) {
      require_room("what parallel.offload pins, the optimizer's states,", pinned, "leave parallel.offload out",
                   run_.world);
    }
    if (run_.device.is_cuda() && config.checkpoint.asynchronous) {
      require_room("the copy of a rank's tensors, for checkpoint.asynchronous,",
                   layout.bytes_given(layout.coordinates_of(run_.world.rank())), "leave checkpoint.asynchronous out",
                   run_.world);
    }
  }
  parallel_.emplace(run_.task.module(), run_.world, how);
  make_optimizers(start);
}

void TrainedModel::make_optimizers(const Start& start) {
  RunLength length{.total_steps = run_.total,
                   .global_batch = start.global_batch,
                   .world_size = run_.data.size(),
                   .steps_of_epoch = run_.steps_of_epoch,
                   .own_rate = run_.own_rate};
  const auto whole = pipeline_ ? pipeline_.parameters() : std::vector<layout::TensorSpec>();
  std::vector<std::unique_ptr<Optimizers::One>> all;
  for (const PartOptimizer& part : run_.parts) {
    Config config = run_.config;
    config.optim = with_rule(config.optim, part.optimizer);
    std::vector<optim::ParameterGroup> groups;
    part.optimizer.rule.visit([&](const auto& rule) { groups = rule.groups; });
    length.own_rate = part.optimizer.rate;
    all.push_back(std::make_unique<Optimizers::One>(Optimizers::One{
        part.name, Optimization(config, parallel_->parameters(part.parameters), length, {}, groups, false)}));
  }
  if (all.empty()) {
    all.push_back(std::make_unique<Optimizers::One>(
        Optimizers::One{{}, Optimization(run_.config, parallel_->parameters(), length, whole, run_.own_groups)}));
  }
  optimizers_.emplace(std::move(all), run_.config.optim, parallel_->parameters());
}

void TrainedModel::load_state(const Start& start) {
  std::vector<tensor::NamedTensor> of_optimization;
  std::map<std::string, at::Tensor> of_strategy;

  for (const tensor::NamedTensor& item : tensor::read_group(*start.from, "optimizer", state(), pipeline_.elsewhere())) {
    if (item.name.starts_with(kOfStrategy))
      of_strategy[item.name.substr(kOfStrategy.size())] = item.tensor;
    else
      of_optimization.push_back(item);
  }
  optimizers_->load_state(of_optimization, start.from->manifest().optimizer_steps);
  if (of_strategy.empty() || run_.data.size() == 1) return;
  if (start.other_strategy.empty()) {
    parallel_->load_strategy_state(of_strategy);
  } else {
    run_.say(fmt::format("note: {}, so what the strategy remembered is dropped", start.other_strategy));
  }
}

void TrainedModel::release() {
  if (optimizers_) optimizers_->leave_out();
  optimizers_.reset();
  parallel_.reset();
  pipeline_ = {};
  divided_ = {};
  context_ = {};
  activations_.reset();
}

void TrainedModel::settle() {
  if (!parallel_ || settled_) return;
  settled_ = true;
  parallel_->settle();
  if (!parallel_->ranks_differ()) return;
  const at::NoGradGuard no_grad;
  for (const tensor::NamedTensor& item : optimizers_->state()) {
    if (!item.tensor.is_floating_point() || item.tensor.numel() == 0) continue;
    const bool counts = item.name.ends_with(".step");
    CallList calls;
    calls.all_reduce(item.tensor.const_data_ptr(), item.tensor.mutable_data_ptr(),
                     static_cast<std::size_t>(item.tensor.numel()), tensor::to_data_type(item.tensor.scalar_type()),
                     counts ? ReduceOp::kMax : ReduceOp::kAvg,
                     {.tag = "optimizer state", .after = tensor::stream_of(item.tensor)});
    tensor::run_calls(run_.data, calls, item.tensor);
  }
}

std::vector<tensor::NamedTensor> TrainedModel::state() const {
  std::vector<tensor::NamedTensor> tensors = optimizers_->state();
  for (const auto& [name, tensor] : parallel_->strategy_state()) {
    tensors.push_back({std::string(kOfStrategy) + name, tensor});
  }
  return tensors;
}

std::int64_t TrainedModel::whole_weights() const {
  std::int64_t bytes = 0;
  for (const at::Tensor& parameter : run_.task.module().parameters())
    bytes += static_cast<std::int64_t>(parameter.nbytes());
  return bytes;
}

double TrainedModel::seconds_met() const {
  double sum = 0;
  for (const ParameterRange& range : parallel_->parameters()) sum += range.sharing().seconds_met();
  return sum;
}

}  // namespace reigen::train
