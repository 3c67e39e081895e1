#include "parallel/weights/first_values.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <set>
#include <utility>

#include "nn/skip_writes.h"
#include "parallel/buffer_sync.h"
#include "reigen/base/error.h"
#include "reigen/comm/call_list.h"
#include "reigen/tensor/data_type.h"
#include "tensor/calls.h"
#include "tensor/memory/away_memory.h"

namespace reigen::parallel {
namespace {

constexpr const char* kTag = "parameters of rank 0";

void give_memory(at::Tensor tensor) {
  if (tensor::is_away(tensor)) tensor.set_data(at::empty(tensor.sizes(), tensor.options().requires_grad(false)));
}

void broadcast_tensor(const Communicator& group, const at::Tensor& values, const std::string& tag, int root) {
  CallList calls;
  calls.broadcast(values.mutable_data_ptr(), static_cast<std::size_t>(values.numel()),
                  tensor::to_data_type(values.scalar_type()), root, {.tag = tag, .after = tensor::stream_of(values)});
  tensor::run_calls(group, calls, values);
}

}  // namespace

void broadcast_weights(const Communicator& world, const std::vector<ParameterRange>& ranges, const std::string& tag,
                       int root) {
  for (const ParameterRange& range : ranges) broadcast_tensor(world, range.values(), tag, root);
}

FirstValues::FirstValues(torch::nn::Module& module, Communicator world, Communicator sharers, Communicator replicas,
                         std::function<void()> initialize)
    : module_(module),
      world_(std::move(world)),
      sharers_(std::move(sharers)),
      replicas_(std::move(replicas)),
      initialize_(std::move(initialize)) {}

void FirstValues::prepare(const std::vector<tensor::NamedParameter>& parameters) {
  const auto found = std::find_if(parameters.begin(), parameters.end(),
                                  [](const auto& entry) { return tensor::is_away(entry.parameter); });
  had_none_ = found != parameters.end();
  if (!initialize_) {
    if (!had_none_) return;
    throw InvalidArgument(
        Report{.what = "[data_parallel] the model was made without memory, and nothing sets its values",
               .got = fmt::format("parameter {}", found->name),
               .expected = "DataParallelOptions::initialize",
               .fix = "data_parallel(model, world, {.initialize = [&] { model.initialize(seed); }})"});
  }
  const at::NoGradGuard no_grad;
  for (const at::Tensor& buffer : module_.buffers()) give_memory(buffer);
  for (const tensor::NamedParameter& entry : parameters) {
    if (!at::isFloatingType(entry.parameter.scalar_type())) give_memory(entry.parameter);
  }
  const nn::SkipWrites to_the_others;
  initialize_();
}

void FirstValues::begin_as_first_replica(const std::vector<tensor::NamedParameter>& parameters) {
  if (replicas_.size() == 1) return;
  const at::NoGradGuard no_grad;
  for (const tensor::NamedParameter& entry : parameters) {
    if (tensor::is_away(entry.parameter)) continue;
    const at::Tensor values = entry.parameter.detach().contiguous();
    broadcast_tensor(replicas_, values, kTag, 0);
    entry.parameter.detach().copy_(values);
  }
}

void FirstValues::fill(const at::Tensor& parameter) {
  {
    const nn::SkipWrites to_the_others;
    initialize_();
  }
  if (replicas_.size() > 1) broadcast_tensor(replicas_, parameter, kTag, 0);
}

// If all ranks share one copy of the weights, only the first rank sets the values.
void FirstValues::complete(const std::vector<tensor::NamedParameter>& parameters,
                           const std::vector<ParameterRange>& trained, const std::vector<ParameterRange>& all,
                           bool come_and_go) {
  if (!had_none_ || come_and_go) return;
  for (const tensor::NamedParameter& entry : parameters) give_memory(entry.parameter);
  const bool is_common = trained.front().is_common();
  if (!is_common || sharers_.rank() == 0) {
    const at::NoGradGuard no_grad;
    initialize_();
    begin_as_first_replica(parameters);
  }
  if (!is_common && trained.front().is_divided()) broadcast_weights(world_, trained, kTag, 0);
  for (const ParameterRange& range : all) {
    range.sharing().meet(kTag);
    range.note_change();
  }
}

void FirstValues::broadcast(const std::vector<at::Tensor>& parameters, const std::vector<ParameterRange>& trained,
                            const std::vector<ParameterRange>& all) {
  if (trained.empty() || !trained.front().is_divided()) broadcast_weights(world_, trained, kTag, 0);
  std::set<const at::TensorImpl*> packed;
  for (const ParameterRange& range : all) {
    for (const tensor::Segment& segment : range.segments()) packed.insert(segment.parameter.unsafeGetTensorImpl());
  }
  std::vector<at::Tensor> frozen;
  for (const at::Tensor& parameter : parameters) {
    if (!packed.contains(parameter.unsafeGetTensorImpl())) frozen.push_back(parameter);
  }
  BufferSync(frozen, world_).broadcast("frozen parameters of rank 0");
}

}  // namespace reigen::parallel
