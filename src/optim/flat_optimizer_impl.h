// Defines the members of FlatOptimizer. The source file of each optimizer includes this header, defines Rule<Options>
// and instantiates the template.
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "optim/option_checks.h"
#include "optim/range_state.h"
#include "reigen/base/error.h"
#include "reigen/optim/flat_optimizer.h"

namespace reigen::optim {

// Each optimizer defines these members for its options:
//   static constexpr const char* kName;
//   static void check(const Options&);                                  throws InvalidArgument
//   static StateKinds states(const Options&);
//   static void apply(const Options&, const std::vector<Update>&);
template <class Options>
struct Rule;

template <class Options>
struct FlatOptimizer<Options>::Impl {
  Options options;
  RangeState state;
};

template <class Options>
StateKinds kinds_of(const Options& options) {
  StateKinds kinds = Rule<Options>::states(options);
  kinds.master = options.master_weights;
  return kinds;
}

template <class Options>
std::vector<layout::StateSpec> FlatOptimizer<Options>::states(const Options& options) {
  return specs_of(kinds_of(options));
}

template <class Options>
FlatOptimizer<Options>::FlatOptimizer(std::vector<ParameterRange> parameters, const Options& options) {
  const char* name = Rule<Options>::kName;
  check_at_least_zero(name, "lr", options.lr);
  check_at_least_zero(name, "weight_decay", options.weight_decay);
  Rule<Options>::check(options);
  StateKinds kinds = kinds_of(options);
  impl_ = std::make_unique<Impl>(
      Impl{options, RangeState(name, std::move(parameters), std::move(kinds), options.weight_decay, options.groups)});
}
template <class Options>
FlatOptimizer<Options>::FlatOptimizer(FlatOptimizer&&) noexcept = default;
template <class Options>
FlatOptimizer<Options>& FlatOptimizer<Options>::operator=(FlatOptimizer&&) noexcept = default;
template <class Options>
FlatOptimizer<Options>::~FlatOptimizer() = default;

template <class Options>
std::string FlatOptimizer<Options>::name() const {
  return Rule<Options>::kName;
}

template <class Options>
void FlatOptimizer<Options>::step(const StepOptions& how) {
  if constexpr (requires { Options::kByLayer; }) {
    if (how.norm != nullptr) {
      throw InvalidArgument(Report{.what = fmt::format("[{}] a step with a norm on the GPU", name()),
                                   .got = "an optimizer that needs the norms of each layer on the host",
                                   .expected = "an optimizer that steps in one pass",
                                   .fix = "take gradient_norm() (reigen/optim/clip.h)"});
    }
  }
  Rule<Options>::apply(impl_->options, impl_->state.begin_step(how));
  impl_->state.end_step();
}

template <class Options>
void FlatOptimizer<Options>::zero_grad() {
  impl_->state.drop_gradients();
}

template <class Options>
double FlatOptimizer<Options>::lr() const {
  return impl_->options.lr;
}

template <class Options>
void FlatOptimizer<Options>::set_lr(double lr) {
  check_at_least_zero(Rule<Options>::kName, "lr", lr);
  impl_->options.lr = lr;
}

template <class Options>
bool FlatOptimizer<Options>::was_finite() const {
  return impl_->state.was_finite();
}

template <class Options>
std::int64_t FlatOptimizer<Options>::steps() const {
  return impl_->state.steps();
}

template <class Options>
std::vector<NamedTensor> FlatOptimizer<Options>::state() const {
  return impl_->state.named();
}

template <class Options>
void FlatOptimizer<Options>::load_state(const std::vector<NamedTensor>& state, std::int64_t steps) {
  impl_->state.load(state, steps);
}

}  // namespace reigen::optim
