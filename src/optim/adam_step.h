// The code that Adam and AdamW share. Adam and AdamW differ in where they apply the weight decay.
#pragma once

#include <cmath>
#include <string>

#include "base/check.h"
#include "optim/option_checks.h"
#include "optim/passes/run_rule.h"

namespace reigen::optim {

template <class Options>
void check_adam(const std::string& name, const Options& options) {
  check_below_one(name, "betas.first", options.betas.first);
  check_below_one(name, "betas.second", options.betas.second);
  check_eps(name, options.eps);
  if (options.amsgrad && options.bf16_states) {
    throw InvalidArgument(Report{.what = fmt::format("[{}] bf16_states and amsgrad do not go together", name),
                                 .got = "both",
                                 .expected = "one: the largest of values that are rounded at random only grows",
                                 .fix = "leave one of them out"});
  }
}

template <class Options>
StateKinds adam_states(const Options& options) {
  StateKinds kinds{.names = {"exp_avg", "exp_avg_sq"}, .bf16 = options.bf16_states};
  if (options.amsgrad) kinds.names.push_back("max_exp_avg_sq");
  return kinds;
}

template <class Options>
void apply_adam(const Options& options, const std::vector<Update>& updates, bool decoupled) {
  apply_rule<kernels::Rule::kAdam>(updates, [&](const Update& update) {
    const double lr = options.lr * update.lr_factor;
    const auto t = static_cast<double>(update.step);
    return kernels::AdamStep{.rate = lr / (1 - std::pow(options.betas.first, t)),
                             .l2 = decoupled ? 0 : update.weight_decay,
                             .keep = decoupled ? 1 - lr * update.weight_decay : 1,
                             .beta1 = options.betas.first,
                             .beta2 = options.betas.second,
                             .root = 1 / std::sqrt(1 - std::pow(options.betas.second, t)),
                             .eps = options.eps,
                             .amsgrad = options.amsgrad};
  });
}

}  // namespace reigen::optim
