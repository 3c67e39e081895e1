// Values of models that were made without memory (nn/without_memory.h).
#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>

#include "nn/skip_writes.h"
#include "parallel/gradient_reducer.h"
#include "reigen/base/error.h"
#include "reigen/tensor/data_type.h"
#include "tensor/away_memory.h"

namespace reigen::parallel {

// Whether there are any.
bool GradientReducer::require_initializer(const std::vector<tensor::NamedParameter>& parameters) const {
  const auto found = std::find_if(parameters.begin(), parameters.end(),
                                  [](const auto& entry) { return tensor::is_away(entry.parameter); });
  if (found != parameters.end() && !options_.initialize) {
    throw InvalidArgument(
        Report{.what = "[data_parallel] the model was made without memory, and nothing sets its values",
               .got = fmt::format("parameter {}", found->name),
               .expected = "DataParallelOptions::initialize",
               .fix = "data_parallel(model, world, {.initialize = [&] { model.initialize(seed); }})"});
  }
  return found != parameters.end();
}

// Of a model that no rank has whole: one parameter has memory.
void GradientReducer::fill_one(const at::Tensor& parameter) {
  const nn::SkipWrites to_the_others;
  options_.initialize();
  if (replicas_.size() == 1) return;
  replicas_.broadcast(parameter.mutable_data_ptr(), static_cast<std::size_t>(parameter.numel()),
                      tensor::to_data_type(parameter.scalar_type()), 0, {.tag = "parameters of rank 0"});
}

// What has memory now, and was packed without values. In one memory of all ranks the first sets them.
void GradientReducer::initialize_all(const std::vector<tensor::NamedParameter>& parameters) {
  if (gatherer_) return;
  for (const tensor::NamedParameter& entry : parameters) {
    if (!tensor::is_away(entry.parameter)) continue;
    at::Tensor(entry.parameter).set_data(at::empty(entry.parameter.sizes(), entry.parameter.options()));
  }
  const bool common = ranges().front().is_common();
  if (!common || sharers_.rank() == 0) {
    options_.initialize();
    begin_as_first_replica(parameters);
  }
  if (!common && ranges().front().is_divided()) broadcast_weights("parameters of rank 0", 0);
  for (const ParameterRange& range : all_ranges()) {
    range.meet("parameters of rank 0");
    range.note_change();
  }
}

}  // namespace reigen::parallel
