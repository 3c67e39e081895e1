#include "train/model/first_weights.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/nn/module.h>

#include <cstddef>
#include <filesystem>
#include <span>
#include <system_error>
#include <utility>

#include "reigen/base/error.h"
#include "reigen/nn/without_memory.h"
#include "tensor/stored_type.h"
#include "train/run/best_checkpoint.h"

namespace reigen::train {

namespace {

constexpr std::size_t kNamed = 5;

void tell(std::string& text, const char* what, const std::vector<std::string>& names) {
  if (names.empty()) return;
  const std::size_t shown = std::min(names.size(), kNamed);
  text += fmt::format("{}{}: {}{}", text.empty() ? "" : "; ", what, fmt::join(std::span(names).first(shown), ", "),
                      shown < names.size() ? fmt::format(" and {} more", names.size() - shown) : "");
}

}  // namespace

std::string weights_path_of(const RunConfig& config) {
  const bool best = config.weights == "best";
  if (!best && config.weights != "last") return config.weights;
  if (config.dir.empty()) {
    throw InvalidArgument(Report{.what = fmt::format("run.weights = {}: of which run?", config.weights),
                                 .fix = "name it with --run.dir DIR, or give --run.weights a path"});
  }
  return best ? best_checkpoint_of(config.dir).string() : config.dir;
}

namespace {

// A best checkpoint was chosen by figures of its averaged weights, if it has any (optim.ema_decay).
checkpoint::Weights weights_at(const std::filesystem::path& path) {
  const std::filesystem::path place = (path / ".").lexically_normal().parent_path();
  std::error_code ignored;
  const bool is_best = place.parent_path().filename() == "best" &&
                       std::filesystem::exists(place.parent_path() / kBestList, ignored) &&
                       std::filesystem::exists(place / "manifest.json", ignored);
  return is_best && checkpoint::Weights::has_averages(place) ? checkpoint::Weights::averages_of(place)
                                                             : checkpoint::Weights(path);
}

}  // namespace

FirstWeights::FirstWeights(const std::string& path, const torch::nn::Module& module, bool strict)
    : weights_(weights_at(path)) {
  weights_.require_readable();
  std::vector<std::string> missing, shapes, unknown;
  std::set<std::string> wanted;
  for (const tensor::NamedTensor& one : tensor::tensors_of(module)) {
    wanted.insert(one.name);
    const checkpoint::TensorInfo* found = weights_.find(one.name);
    if (found == nullptr)
      missing.push_back(one.name);
    else if (at::IntArrayRef(found->shape) != one.tensor.sizes())
      shapes.push_back(fmt::format("{} is [{}], the model's is [{}]", one.name, fmt::join(found->shape, ", "),
                                   fmt::join(one.tensor.sizes(), ", ")));
    else
      fit_.insert(one.name);
  }
  for (const checkpoint::TensorInfo& one : weights_.tensors()) {
    if (!wanted.contains(one.name)) unknown.push_back(one.name);
  }
  tell(differences_, "not in the file", missing);
  tell(differences_, "of another shape", shapes);
  tell(differences_, "not in the model", unknown);
  if (differences_.empty() || (!strict && !fit_.empty())) return;
  throw DataError(Report{.what = fmt::format("run.weights: {} ({}) does not fit the model", path, weights_.kind()),
                         .got = differences_,
                         .expected = fmt::format("the model's {} tensors", wanted.size()),
                         .fix = fit_.empty()
                                    ? "give the weights of this model, or rename them: reigen checkpoint import "
                                      "FILE OTHER --rename OLD=NEW"
                                    : "give the weights of this model, or take what fits with --run.strict "
                                      "false"});
}

void FirstWeights::read_into(const std::vector<tensor::NamedTensor>& tensors) const {
  const at::NoGradGuard no_grad;
  for (const tensor::NamedTensor& one : tensors) {
    if (!fit_.contains(one.name) || nn::has_no_memory(one.tensor)) continue;
    const checkpoint::TensorInfo& found = *weights_.find(one.name);
    const at::Tensor stored = at::empty(one.tensor.sizes(), tensor::scalar_type_of(one.name, found.type));
    weights_.read(one.name, {static_cast<std::byte*>(stored.data_ptr()), static_cast<std::size_t>(found.bytes())});
    at::Tensor(one.tensor).copy_(stored);
  }
}

}  // namespace reigen::train
