#include "reigen/optim/rmsprop.h"

#include "optim/flat_optimizer_impl.h"
#include "optim/passes/run_rule.h"

namespace reigen::optim {

template <>
struct Rule<RMSpropOptions> {
  static constexpr const char* kName = "rmsprop";

  static void check(const RMSpropOptions& options) {
    check_below_one(kName, "alpha", options.alpha);
    check_eps(kName, options.eps);
    check_at_least_zero(kName, "momentum", options.momentum);
  }

  static StateKinds states(const RMSpropOptions& options) {
    StateKinds kinds{.names = {"square_avg"}};
    if (options.centered) kinds.names.push_back("grad_avg");
    if (options.momentum > 0) kinds.names.push_back("momentum_buffer");
    return kinds;
  }

  static void apply(const RMSpropOptions& options, const std::vector<Update>& updates) {
    apply_rule<kernels::Rule::kRmsprop>(updates, [&](const Update& update) {
      return kernels::RmspropStep{.lr = options.lr * update.lr_factor,
                                  .l2 = update.weight_decay,
                                  .alpha = options.alpha,
                                  .eps = options.eps,
                                  .momentum = options.momentum,
                                  .centered = options.centered,
                                  .has_momentum = options.momentum > 0};
    });
  }
};

template class FlatOptimizer<RMSpropOptions>;

}  // namespace reigen::optim
