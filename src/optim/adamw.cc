#include "reigen/optim/adamw.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "optim/range_state.h"

namespace reigen::optim {
namespace {

constexpr const char* kName = "adamw";

void check(const AdamWOptions& options) {
  check_at_least_zero(kName, "lr", options.lr);
  check_below_one(kName, "betas.first", options.betas.first);
  check_below_one(kName, "betas.second", options.betas.second);
  check_above_zero(kName, "eps", options.eps);  // 0 / 0 where nothing has ever had a gradient, in spare elements too
  check_at_least_zero(kName, "weight_decay", options.weight_decay);
}

std::vector<std::string> kinds(const AdamWOptions& options) {
  std::vector<std::string> result{"exp_avg", "exp_avg_sq"};
  if (options.amsgrad) result.push_back("max_exp_avg_sq");
  return result;
}

}  // namespace

struct AdamW::Impl {
  AdamWOptions options;
  RangeState state;

  void update(Runs& runs) {
    if (runs.empty()) return;
    const std::vector<at::Tensor> none;
    at::_fused_adamw_(runs.values, runs.gradients, runs.states[0], runs.states[1],
                      options.amsgrad ? runs.states[2] : none, runs.steps, options.lr, options.betas.first,
                      options.betas.second, options.weight_decay, options.eps, options.amsgrad, /*maximize=*/false);
  }
};

AdamW::AdamW(std::vector<ParameterRange> parameters, const AdamWOptions& options) {
  check(options);
  impl_ = std::make_unique<Impl>(Impl{options, RangeState(kName, std::move(parameters), kinds(options))});
}
AdamW::AdamW(AdamW&&) noexcept = default;
AdamW& AdamW::operator=(AdamW&&) noexcept = default;
AdamW::~AdamW() = default;

std::string AdamW::name() const { return kName; }

void AdamW::step() {
  at::NoGradGuard no_grad;
  RangeState::Step step = impl_->state.begin_step();
  impl_->update(step.first);
  impl_->update(step.later);
  impl_->state.end_step();
}

void AdamW::zero_grad() { impl_->state.drop_gradients(); }

double AdamW::lr() const { return impl_->options.lr; }

void AdamW::set_lr(double lr) {
  check_at_least_zero(kName, "lr", lr);
  impl_->options.lr = lr;
}

std::int64_t AdamW::steps() const { return impl_->state.steps(); }

std::vector<NamedTensor> AdamW::state() const { return impl_->state.named(); }

void AdamW::load_state(const std::vector<NamedTensor>& state, std::int64_t steps) { impl_->state.load(state, steps); }

}  // namespace reigen::optim
