// First values where DataParallelOptions::initialize sets them: of models that were made without memory.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <torch/nn/module.h>

#include <algorithm>

#include "nn/skip_writes.h"
#include "parallel/gradient_reducer.h"
#include "reigen/base/error.h"
#include "reigen/tensor/data_type.h"
#include "tensor/away_memory.h"

namespace reigen::parallel {
namespace {

void give_memory(at::Tensor tensor) {
  if (tensor::is_away(tensor)) tensor.set_data(at::empty(tensor.sizes(), tensor.options().requires_grad(false)));
}

}  // namespace

// Before weights are divided: what has memory, and what is not divided, has its values. The others' turn comes.
void GradientReducer::prepare_values(const std::vector<tensor::NamedParameter>& parameters) {
  const auto found = std::find_if(parameters.begin(), parameters.end(),
                                  [](const auto& entry) { return tensor::is_away(entry.parameter); });
  had_none_ = found != parameters.end();
  if (!options_.initialize) {
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
  options_.initialize();
}

// Of a model that no rank has whole: this parameter has memory now.
void GradientReducer::fill_one(const at::Tensor& parameter) {
  {
    const nn::SkipWrites to_the_others;
    options_.initialize();
  }
  if (replicas_.size() == 1) return;
  replicas_.broadcast(parameter.mutable_data_ptr(), static_cast<std::size_t>(parameter.numel()),
                      tensor::to_data_type(parameter.scalar_type()), 0, {.tag = "parameters of rank 0"});
}

// What was packed without values has memory now. In one memory of all ranks the first of them sets them.
void GradientReducer::complete_values(const std::vector<tensor::NamedParameter>& parameters) {
  if (!had_none_ || gatherer_) return;
  for (const tensor::NamedParameter& entry : parameters) give_memory(entry.parameter);
  const bool common = ranges().front().is_common();
  if (!common || sharers_.rank() == 0) {
    const at::NoGradGuard no_grad;
    options_.initialize();
    begin_as_first_replica(parameters);
  }
  if (!common && ranges().front().is_divided()) broadcast_weights("parameters of rank 0", 0);
  for (const ParameterRange& range : all_ranges()) {
    range.sharing().meet("parameters of rank 0");
    range.note_change();
  }
}

}  // namespace reigen::parallel
