#include "reigen/optim/adagrad.h"

#include "optim/flat_optimizer_impl.h"
#include "optim/passes/run_rule.h"

namespace reigen::optim {

template <>
struct Rule<AdagradOptions> {
  static constexpr const char* kName = "adagrad";

  static void check(const AdagradOptions& options) {
    check_at_least_zero(kName, "lr_decay", options.lr_decay);
    check_at_least_zero(kName, "initial_accumulator_value", options.initial_accumulator_value);
    check_eps(kName, options.eps);
  }

  static StateKinds states(const AdagradOptions& options) {
    return {.names = {"sum"}, .initial = options.initial_accumulator_value};
  }

  static void apply(const AdagradOptions& options, const std::vector<Update>& updates) {
    apply_rule<kernels::Rule::kAdagrad>(updates, [&](const Update& update) {
      const double decay = 1 + static_cast<double>(update.step - 1) * options.lr_decay;
      return kernels::AdagradStep{
          .rate = options.lr * update.lr_factor / decay, .l2 = update.weight_decay, .eps = options.eps};
    });
  }
};

template class FlatOptimizer<AdagradOptions>;

}  // namespace reigen::optim
