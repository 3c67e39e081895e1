#include "parallel/weights/first_values.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <exception>
#include <set>
#include <utility>

#include "base/check.h"
#include "nn/skip_writes.h"
#include "parallel/buffer_sync.h"
#include "reigen/base/error.h"
#include "reigen/comm/call_list.h"
#include "reigen/tensor/data_type.h"
#include "tensor/calls.h"
#include "tensor/hooks/intercept.h"
#include "tensor/memory/away_memory.h"
#include "tensor/memory/shared_tensor.h"

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

void OnHost::take(at::Tensor tensor) {
  if (!tensor.is_cuda() || tensor.numel() == 0) return;
  const tensor::Uncaught whole(tensor::Where::kUse);  // the weights may be divided
  const at::Tensor own = tensor.detach();
  REIGEN_ASSERT(!tensor::is_away(own), "a tensor without memory cannot be copied to the host");
  taken_.emplace_back(tensor, own);
  tensor.set_data(own.cpu());
}

void OnHost::finish() {
  const tensor::Uncaught whole(tensor::Where::kUse);
  for (const auto& [tensor, own] : taken_) own.copy_(tensor.detach());
  give_back();
}

void OnHost::give_back() {
  const tensor::Uncaught whole(tensor::Where::kUse);
  for (auto& [tensor, own] : taken_) tensor.set_data(own);
  taken_.clear();
}

FirstValues::FirstValues(torch::nn::Module& module, Communicator world, Communicator sharers, Communicator replicas,
                         TensorParallel divided, std::function<void()> initialize)
    : module_(module),
      world_(std::move(world)),
      sharers_(std::move(sharers)),
      replicas_(std::move(replicas)),
      divided_(std::move(divided)),
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
  for (const tensor::NamedParameter& entry : parameters) {
    if (!divided_.divides(entry.name)) continue;
    names_of_divided_[entry.parameter.unsafeGetTensorImpl()] = entry.name;
    if (tensor::is_away(entry.parameter)) continue;
    throw InvalidArgument(
        Report{.what = "[data_parallel] initialize would set a divided parameter, which has memory already",
               .got = fmt::format("parameter {}", entry.name),
               .expected = "a model that was made without memory (nn/without_memory.h)",
               .fix = "set the values before parallelize(), and leave initialize out"});
  }
  const at::NoGradGuard no_grad;
  for (const at::Tensor& buffer : module_.buffers()) give_memory(buffer);
  for (const tensor::NamedParameter& entry : parameters) {
    if (!at::isFloatingType(entry.parameter.scalar_type())) give_memory(entry.parameter);
  }
  all_ = parameters;
  for (const at::Tensor& buffer : module_.buffers()) buffers_.take(buffer);
  OnHost with_memory;
  for (const tensor::NamedParameter& entry : parameters) {
    if (!tensor::is_away(entry.parameter)) with_memory.take(entry.parameter);
  }
  const nn::SkipWrites to_the_others;
  initialize_();
  with_memory.finish();
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

// Takes the memory of tensors away, and gives it back when it is destroyed.
class Away {
 public:
  explicit Away(const std::vector<tensor::NamedParameter>& parameters) {
    const tensor::Uncaught whole(tensor::Where::kUse);  // the weights may be divided
    for (const tensor::NamedParameter& entry : parameters) {
      if (entry.parameter.numel() == 0) continue;
      kept_.emplace_back(entry.parameter, entry.parameter.detach());
      take(kept_.size() - 1);
    }
  }
  ~Away() {
    for (std::size_t i = 0; i < kept_.size(); ++i) give(i);
  }
  Away(const Away&) = delete;  // only one object may give the memory back
  Away& operator=(const Away&) = delete;

  std::size_t size() const { return kept_.size(); }
  const at::Tensor& tensor(std::size_t i) const { return kept_[i].first; }
  void give(std::size_t i) {
    const tensor::Uncaught whole(tensor::Where::kUse);
    kept_[i].first.set_data(kept_[i].second);
  }
  void take(std::size_t i) {
    const tensor::Uncaught whole(tensor::Where::kUse);
    const at::Tensor& own = kept_[i].second;
    kept_[i].first.set_data(tensor::away_tensor(own.sizes(), own.scalar_type(), own.device()));
  }

 private:
  std::vector<std::pair<at::Tensor, at::Tensor>> kept_;  // a tensor, and its memory
};

// Sets the values of the only parameter that has memory. The first of the ranks that divide the model calls
// `initialize` and gives the others its values. If the parameter is divided, `initialize` sets those of the whole
// parameter in memory of their own, and each of the others gets its part.
void FirstValues::set_only(at::Tensor parameter) {
  const tensor::Uncaught whole(tensor::Where::kUse);
  const auto found = names_of_divided_.find(parameter.unsafeGetTensorImpl());
  const bool is_divided = found != names_of_divided_.end();
  const bool is_first = !divided_ || divided_.region().group.rank() == 0;
  const at::Tensor own = parameter.detach();
  if (is_divided && is_first)
    parameter.set_data(tensor::brief_tensor(divided_.whole_shape(found->second), own.options().device(at::kCPU)));
  else if (is_first && own.is_cuda())
    parameter.set_data(at::empty(own.sizes(), own.options().device(at::kCPU)));
  if (is_first) {
    try {
      const nn::SkipWrites to_the_others;
      initialize_();
    } catch (const std::exception& error) {
      parameter.set_data(own);
      // The other ranks wait for their parts.
      if (divided_) divided_.region().group.abort(fmt::format("initialize: {}", error.what()));
      throw;
    }
  }
  if (is_divided) {
    divided_.scatter(found->second, parameter.detach().to(own.device()), own, 0);
    parameter.set_data(own);
    return;
  }
  if (is_first && own.is_cuda()) {
    own.copy_(parameter.detach());
    parameter.set_data(own);
  }
  if (divided_) broadcast_tensor(divided_.region().group, own, kTag, 0);
}

// Sets the values of all parameters, which have memory.
void FirstValues::set_values(const std::vector<tensor::NamedParameter>& parameters) {
  if (!divided_) {
    OnHost on_host;
    for (const tensor::NamedParameter& entry : parameters) {
      if (!tensor::is_away(entry.parameter)) on_host.take(entry.parameter);
    }
    const nn::SkipWrites to_those_of_other_stages;
    initialize_();
    return on_host.finish();
  }
  Away away(parameters);
  for (std::size_t i = 0; i < away.size(); ++i) {
    away.give(i);
    set_only(away.tensor(i));
    away.take(i);
  }
}

void FirstValues::fill(const at::Tensor& parameter) {
  // On a GPU `initialize` cannot write to other parameters, so those that have memory are without it meanwhile.
  std::vector<tensor::NamedParameter> others;
  for (const tensor::NamedParameter& entry : all_) {
    if (entry.parameter.is_cuda() && !entry.parameter.is_same(parameter) && !tensor::is_away(entry.parameter))
      others.push_back(entry);
  }
  const Away without_the_others(others);
  set_only(parameter);
  if (replicas_.size() > 1) broadcast_tensor(replicas_, parameter, kTag, 0);
}

// If all ranks share one copy of the weights, only the first rank sets the values.
void FirstValues::complete(const std::vector<tensor::NamedParameter>& parameters,
                           const std::vector<ParameterRange>& trained, const std::vector<ParameterRange>& all,
                           bool come_and_go) {
  if (!had_none_ || come_and_go) return buffers_.finish();
  for (const tensor::NamedParameter& entry : parameters) give_memory(entry.parameter);
  const bool is_common = trained.front().is_common();
  if (!is_common || sharers_.rank() == 0) {
    const at::NoGradGuard no_grad;
    set_values(parameters);
    begin_as_first_replica(parameters);
  }
  if (!is_common && trained.front().is_divided()) broadcast_weights(world_, trained, kTag, 0);
  buffers_.finish();
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
