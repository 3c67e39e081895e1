#include "parallel/check/model_guard.h"

#include <fmt/format.h>
#include <torch/nn/module.h>

#include <algorithm>

#include "reigen/base/error.h"
#include "reigen/tensor/flat_parameters.h"

namespace reigen::parallel {
namespace {

[[noreturn]] void refuse_change(const std::string& name, const std::string& what) {
  throw InvalidArgument(Report{.what = fmt::format("[data_parallel] parameter {} {} after data_parallel()", name, what),
                               .expected = "the parameters that the model had when it was wrapped",
                               .fix = "change the model first and wrap it then"});
}

}  // namespace

ModelGuard::ModelGuard(const torch::nn::Module& module) : module_(module) {
  for (const tensor::NamedParameter& entry : tensor::named_parameters(module)) {
    known_.push_back({entry.name, entry.parameter, entry.parameter.storage().unsafeGetStorageImpl(),
                      entry.parameter.requires_grad()});
  }
}

void ModelGuard::require_unchanged() const {
  const std::vector<tensor::NamedParameter> now = tensor::named_parameters(module_);
  for (std::size_t i = 0; i < std::max(now.size(), known_.size()); ++i) {
    if (i >= now.size() || (i < known_.size() && now[i].name != known_[i].name)) {
      const auto known_name = [&](const std::string& name) {
        return std::any_of(known_.begin(), known_.end(), [&](const Known& known) { return known.name == name; });
      };
      if (i < now.size() && !known_name(now[i].name)) refuse_change(now[i].name, "was added");
      refuse_change(known_[i].name, "was removed");
    }
    if (i >= known_.size()) refuse_change(now[i].name, "was added");
    const Known& known = known_[i];
    const at::Tensor& parameter = now[i].parameter;
    if (parameter.unsafeGetTensorImpl() != known.parameter.unsafeGetTensorImpl()) {
      refuse_change(known.name, "was replaced by another tensor");
    }
    if (parameter.storage().unsafeGetStorageImpl() != known.storage) {
      refuse_change(known.name, "was moved or converted");
    }
    if (!known.trainable && parameter.requires_grad()) refuse_change(known.name, "was unfrozen");
  }
}

void ModelGuard::require_own_steps(const std::vector<ParameterRange>& ranges) {
  for (const ParameterRange& range : ranges) {
    if (range.sharing().is_unmodified()) continue;
    throw InvalidArgument(Report{
        .what =
            "[data_parallel] weights that ranks share (shard) changed otherwise than by an optimizer of reigen::optim",
        .got = fmt::format("other values than those it left, in the range that begins with {}",
                           range.segments().front().name),
        .expected = "optimizer.step() of one made of parameters()",
        .fix = "use reigen::optim, or leave shard out; load weights before data_parallel(); what one rank changes by "
               "hand every rank tells with note_change() of the range, after a barrier"});
  }
}

std::vector<at::Tensor> ModelGuard::trainable() const {
  std::vector<at::Tensor> result;
  for (const Known& known : known_) {
    if (known.trainable) result.push_back(known.parameter);
  }
  return result;
}

std::vector<at::Tensor> ModelGuard::all() const {
  std::vector<at::Tensor> result;
  for (const Known& known : known_) result.push_back(known.parameter);
  return result;
}

}  // namespace reigen::parallel
