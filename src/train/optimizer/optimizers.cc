#include "train/optimizer/optimizers.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "base/text.h"
#include "reigen/base/error.h"

namespace reigen::train {
namespace {

bool is_of_average(const std::string& name) { return name.ends_with(".ema") || name == "ema.updates"; }

// No module has such a name.
std::string steps_name(const std::string& optimizer) { return fmt::format("//optimizer/{}.steps", optimizer); }

}  // namespace

Optimizers::Optimizers(std::vector<std::unique_ptr<One>> all, const OptimConfig& config,
                       const std::vector<ParameterRange>& parameters)
    : all_(std::move(all)) {
  if (config.ema_decay > 0) average_.emplace(parameters, optim::EmaOptions{.decay = config.ema_decay});
}

Optimization& Optimizers::named(std::string_view name) {
  const auto found = std::find_if(all_.begin(), all_.end(), [&](const auto& one) { return one->name == name; });
  if (found != all_.end()) return (*found)->optimization;
  std::vector<std::string> names;
  for (const auto& one : all_) names.push_back(one->name);
  const std::string meant = base::nearest(std::string(name), names);
  throw InvalidArgument(
      Report{.what = "manual_step(): no optimizer has this name",
             .got = std::string(name),
             .expected = fmt::format("a name that ManualTask::optimizers() gives: {}", fmt::join(names, ", ")),
             .fix = meant.empty() ? "" : fmt::format("did you mean {}?", meant)});
}

void Optimizers::leave_out() {
  for (const auto& one : all_) one->optimization.leave_out();
}

void Optimizers::set_lr_factor(double factor) {
  for (const auto& one : all_) one->optimization.set_lr_factor(factor);
}

std::vector<tensor::NamedTensor> Optimizers::state() const {
  std::vector<tensor::NamedTensor> tensors;
  const auto append = [&](const std::vector<tensor::NamedTensor>& more) {
    tensors.insert(tensors.end(), more.begin(), more.end());
  };
  for (const auto& one : all_) {
    append(one->optimization.state());
    if (all_.size() > 1) append({{steps_name(one->name), at::full({1}, one->optimization.steps(), at::kLong)}});
  }
  if (average_) append(average_->state());
  return tensors;
}

void Optimizers::load_state(const std::vector<tensor::NamedTensor>& state, std::int64_t steps) {
  std::vector<tensor::NamedTensor> of_average;
  std::vector<tensor::NamedTensor> others;
  for (const auto& item : state) (is_of_average(item.name) ? of_average : others).push_back(item);
  if (average_ && !of_average.empty()) average_->load_state(of_average);
  if (all_.size() == 1) return first().load_state(others, steps);
  std::map<std::string, std::int64_t> made;
  for (const auto& item : others) {
    if (item.name.starts_with("//")) made[item.name] = item.tensor.item<std::int64_t>();
  }
  // A resume has compared the names and rules of the optimizers with those of the checkpoint (start/resume.h). Each
  // optimizer gets all states of its parameters, and refuses a state that it does not keep.
  for (const auto& one : all_) {
    std::set<std::string> parameters;
    for (const ParameterRange& range : one->optimization.parameters()) {
      for (const tensor::Segment& segment : range.segments()) parameters.insert(segment.name);
    }
    std::vector<tensor::NamedTensor> own;
    std::copy_if(others.begin(), others.end(), std::back_inserter(own),
                 [&](const auto& item) { return parameters.contains(item.name.substr(0, item.name.rfind('.'))); });
    const auto steps_made = made.find(steps_name(one->name));
    if (steps_made == made.end()) {
      throw InvalidArgument(Report{.what = "the checkpoint has no state of an optimizer",
                                   .got = fmt::format("none of {}", one->name),
                                   .expected = "the optimizers of the run that is to go on",
                                   .fix = "name the optimizers as that run did, or begin with its --run.weights"});
    }
    one->optimization.load_state(own, steps_made->second);
  }
}

void Optimizers::update_average() {
  if (average_) average_->update(first().norm());
}

std::optional<optim::ExponentialMovingAverage::Swapped> Optimizers::swap_in_average() {
  if (!average_) return std::nullopt;
  return average_->swap_in();
}

}  // namespace reigen::train
