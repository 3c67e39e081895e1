#include "reigen/optim/lamb.h"

#include <algorithm>
#include <cmath>

#include "optim/flat_optimizer_impl.h"
#include "optim/passes/run_rule.h"

namespace reigen::optim {

template <>
struct Rule<LAMBOptions> {
  static constexpr const char* kName = "lamb";

  static void check(const LAMBOptions& options) {
    check_below_one(kName, "betas.first", options.betas.first);
    check_below_one(kName, "betas.second", options.betas.second);
    check_eps(kName, options.eps);
    check_at_least_zero(kName, "norm_low", options.norm_low);
    if (!(options.norm_high >= options.norm_low && options.norm_high > 0)) {
      refuse_option(kName, "norm_high", options.norm_high, "a number above 0 and of at least norm_low");
    }
  }

  static StateKinds states(const LAMBOptions&) { return {.names = {"exp_avg", "exp_avg_sq"}}; }

  static kernels::LambStep step_of(const LAMBOptions& options, const Update& update) {
    const auto t = static_cast<double>(update.step);
    return {.weight_decay = update.weight_decay,
            .beta1 = options.betas.first,
            .beta2 = options.betas.second,
            .scale = 1 / (1 - std::pow(options.betas.first, t)),
            .root = 1 / std::sqrt(1 - std::pow(options.betas.second, t)),
            .eps = options.eps};
  }

  static double trust_ratio(const LAMBOptions& options, const Update& update, const kernels::Squares& squares) {
    if (!update.adapt || squares.first == 0 || squares.second == 0) return 1;
    return std::clamp(std::sqrt(squares.first), options.norm_low, options.norm_high) / std::sqrt(squares.second);
  }

  static void apply(const LAMBOptions& options, const std::vector<Update>& updates) {
    const auto squares = sums_of_rule<kernels::Rule::kLambMoments>(
        updates, [&](const Update& update) { return step_of(options, update); }, [](const Update&) { return true; });
    apply_rule<kernels::Rule::kLambApply>(updates, [&](const Update& update) {
      kernels::LambStep step = step_of(options, update);
      const auto i = static_cast<std::size_t>(&update - updates.data());
      step.rate = options.lr * update.lr_factor * trust_ratio(options, update, squares[i]);
      return step;
    });
  }
};

template class FlatOptimizer<LAMBOptions>;

}  // namespace reigen::optim
