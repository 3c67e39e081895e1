#include "reigen/optim/sgd.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <cmath>

#include "base/check.h"
#include "optim/range_state.h"

namespace reigen::optim {
namespace {

constexpr const char* kName = "sgd";

void check(const SGDOptions& options) {
  check_at_least_zero(kName, "lr", options.lr);
  check_at_least_zero(kName, "momentum", options.momentum);
  check_at_least_zero(kName, "weight_decay", options.weight_decay);
  if (!std::isfinite(options.dampening)) {
    throw InvalidArgument(Report{.what = "[sgd] dampening is out of range",
                                 .got = fmt::format("{}", options.dampening),
                                 .expected = "a finite number",
                                 .fix = "set dampening to such a number"});
  }
  if (options.nesterov && !(options.momentum > 0 && options.dampening == 0)) {
    throw InvalidArgument(Report{.what = "[sgd] nesterov needs momentum and no dampening",
                                 .got = fmt::format("momentum {}, dampening {}", options.momentum, options.dampening),
                                 .expected = "momentum above 0, dampening 0",
                                 .fix = "set momentum, for example to 0.9, and dampening to 0"});
  }
}

}  // namespace

struct SGD::Impl {
  SGDOptions options;
  RangeState state;

  void update(Runs& runs, bool is_first_step) {
    if (runs.empty()) return;
    const std::vector<at::Tensor> none;
    at::_fused_sgd_(runs.values, runs.gradients, options.momentum > 0 ? runs.states[0] : none, options.weight_decay,
                    options.momentum, options.lr, options.dampening, options.nesterov, /*maximize=*/false,
                    is_first_step);
  }
};

SGD::SGD(std::vector<ParameterRange> parameters, const SGDOptions& options) {
  check(options);
  std::vector<std::string> kinds;
  if (options.momentum > 0) kinds.push_back("momentum");
  impl_ = std::make_unique<Impl>(Impl{options, RangeState(kName, std::move(parameters), std::move(kinds))});
}
SGD::SGD(SGD&&) noexcept = default;
SGD& SGD::operator=(SGD&&) noexcept = default;
SGD::~SGD() = default;

std::string SGD::name() const { return kName; }

void SGD::step() {
  at::NoGradGuard no_grad;
  RangeState::Step step = impl_->state.begin_step();
  impl_->update(step.first, true);
  impl_->update(step.later, false);
  impl_->state.end_step();
}

void SGD::zero_grad() { impl_->state.drop_gradients(); }

double SGD::lr() const { return impl_->options.lr; }

void SGD::set_lr(double lr) {
  check_at_least_zero(kName, "lr", lr);
  impl_->options.lr = lr;
}

std::int64_t SGD::steps() const { return impl_->state.steps(); }

std::vector<NamedTensor> SGD::state() const { return impl_->state.named(); }

void SGD::load_state(const std::vector<NamedTensor>& state, std::int64_t steps) { impl_->state.load(state, steps); }

}  // namespace reigen::optim
