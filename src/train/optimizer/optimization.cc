#include "train/optimizer/optimization.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "config/checks.h"
#include "reigen/base/error.h"
#include "reigen/optim/adagrad.h"
#include "reigen/optim/adam.h"
#include "reigen/optim/adamw.h"
#include "reigen/optim/clip.h"
#include "reigen/optim/lamb.h"
#include "reigen/optim/lars.h"
#include "reigen/optim/lion.h"
#include "reigen/optim/rmsprop.h"
#include "reigen/optim/sgd.h"
#include "train/optimizer/parameter_groups.h"

namespace reigen::train {
namespace {

std::unique_ptr<optim::Optimizer> make_optimizer(const OptimConfig& config,
                                                 const std::vector<ParameterRange>& parameters,
                                                 const std::vector<optim::ParameterGroup>& groups) {
  std::unique_ptr<optim::Optimizer> optimizer;
  config.rule.visit([&]<class Options>(Options options) {
    options.lr = config.lr.value_or(options.lr);
    options.weight_decay = config.weight_decay.value_or(options.weight_decay);
    if (!options.groups.empty()) {
      throw InvalidArgument(Report{.what = "groups of an optimizer's options in a configuration",
                                   .fix = "tell them by optim.no_decay, optim.no_adapt and optim.lr_factors"});
    }
    options.groups = groups;
    optimizer = std::make_unique<optim::FlatOptimizer<Options>>(parameters, options);
  });
  return optimizer;
}

// Whether the optimizer steps in one pass. LARS and LAMB do not, because they need the norms of a layer before its
// step.
bool steps_in_one_pass(const OptimConfig& config) {
  bool in_one_pass = true;
  config.rule.visit([&](const auto& options) {
    in_one_pass = !requires { options.kByLayer; };
  });
  return in_one_pass;
}

const Config& checked(const Config& config) {
  config::require_optimization(config);
  return config;
}

}  // namespace

std::vector<layout::StateSpec> states_of(const OptimConfig& config) {
  std::vector<layout::StateSpec> states;
  config.rule.visit(
      [&]<class Options>(const Options& options) { states = optim::FlatOptimizer<Options>::states(options); });
  if (config.ema_decay > 0) states.push_back({.name = "ema", .type_of_16_bits = format::TensorType::kF32});
  return states;
}

Optimization::Optimization(const Config& config, const std::vector<ParameterRange>& parameters, const RunLength& length,
                           const std::vector<layout::TensorSpec>& whole,
                           const std::vector<optim::ParameterGroup>& groups, bool may_read_late)
    : parameters_(parameters),
      rate_(checked(config).optim, length),
      clip_norm_(config.train.clip_norm),
      clip_value_(config.train.clip_value) {
  optimizer_ = make_optimizer(
      config.optim, parameters,
      groups.empty() ? parameter_groups(config.optim, parameters, whole) : own_groups(groups, parameters, whole));
  if (config.train.precision == "fp16") {
    optim::GradScalerOptions scaling;
    scaling.init_scale = config.train.loss_scale.value_or(scaling.init_scale);
    scaler_.emplace(scaling);
  }
  const bool keeps_own = length.world_size == 1 || parameters.front().rows() != nullptr;
  const bool must_know_before = config.train.not_finite == "skip";
  const bool in_one_pass = steps_in_one_pass(config.optim);
  const at::Device device = parameters.front().values().device();
  const bool each_for_itself = config::acts_on_weights(config.parallel.strategy);
  if (may_read_late && device.is_cuda() && in_one_pass && !scaler_ && !must_know_before && !each_for_itself) {
    norm_.emplace(device, optim::DeviceNormOptions{.max_norm = clip_norm_});
  }
  checks_in_step_ = in_one_pass && keeps_own && clip_norm_ == 0 && !scaler_ && !must_know_before && !norm_;
}

Optimization::Gradients Optimization::look() {
  if (norm_) norm_->compute(parameters_);
  if (norm_ || scaler_ || checks_in_step_) return {};
  const optim::GradientNorm norm = optim::gradient_norm(parameters_);
  const bool clips = norm.finite && clip_norm_ > 0;
  return {.norm = norm.norm, .finite = norm.finite, .factor = clips ? optim::clip_factor(norm.norm, clip_norm_) : 1};
}

at::Tensor Optimization::scaled(const at::Tensor& loss) const { return scaler_ ? scaler_->scale(loss) : loss; }

Optimization::Gradients Optimization::step(std::int64_t done, const Gradients& gradients, Communicator* agree) {
  optimizer_->set_lr(rate_.at(done) * lr_factor_);
  if (scaler_) {
    const bool stepped =
        scaler_->step(*optimizer_, parameters_, {.max_norm = clip_norm_, .max_value = clip_value_, .agree = agree});
    optimizer_->zero_grad();
    return {.norm = stepped ? std::optional(scaler_->last_norm()) : std::nullopt, .stepped = stepped};
  }
  optim::StepOptions how{.gradient_factor = gradients.factor};
  if (clip_value_ > 0) how.gradient_limit = clip_value_;
  how.check_finite = checks_in_step_;
  how.norm = norm();
  optimizer_->step(how);
  Gradients seen = gradients;
  if (checks_in_step_) seen.finite = optimizer_->was_finite();
  if (!seen.finite) return seen;
  optimizer_->zero_grad();
  return seen;
}

std::vector<tensor::NamedTensor> Optimization::state() const {
  std::vector<tensor::NamedTensor> tensors = optimizer_->state();
  const auto append = [&](const std::vector<tensor::NamedTensor>& more) {
    tensors.insert(tensors.end(), more.begin(), more.end());
  };
  if (scaler_) append(scaler_->state());
  return tensors;
}

void Optimization::load_state(const std::vector<tensor::NamedTensor>& state, std::int64_t steps) {
  std::vector<tensor::NamedTensor> of_optimizer;
  std::vector<tensor::NamedTensor> of_scaler;
  for (const auto& item : state) {
    const bool is_of_scaler =
        item.name == "scaler.scale" || item.name == "scaler.clean_steps" || item.name == "scaler.skipped";
    (is_of_scaler ? of_scaler : of_optimizer).push_back(item);
  }
  optimizer_->load_state(of_optimizer, steps);
  if (scaler_ && !of_scaler.empty()) scaler_->load_state(of_scaler);
}

}  // namespace reigen::train
