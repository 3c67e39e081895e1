#include "reigen/optim/sgd.h"

#include "base/check.h"
#include "optim/flat_optimizer_impl.h"
#include "optim/passes/run_rule.h"

namespace reigen::optim {

template <>
struct Rule<SGDOptions> {
  static constexpr const char* kName = "sgd";

  static void check(const SGDOptions& options) {
    check_at_least_zero(kName, "momentum", options.momentum);
    check_finite(kName, "dampening", options.dampening);
    if (options.nesterov && !(options.momentum > 0 && options.dampening == 0)) {
      throw InvalidArgument(Report{.what = "[sgd] nesterov needs momentum and no dampening",
                                   .got = fmt::format("momentum {}, dampening {}", options.momentum, options.dampening),
                                   .expected = "momentum above 0, dampening 0",
                                   .fix = "set momentum, for example to 0.9, and dampening to 0"});
    }
    if (options.bf16_states && options.momentum == 0) {
      throw InvalidArgument(Report{.what = "[sgd] bf16_states needs momentum",
                                   .got = "momentum 0, which keeps no state",
                                   .fix = "set momentum, for example to 0.9, or leave bf16_states out"});
    }
  }

  static StateKinds states(const SGDOptions& options) {
    if (options.momentum == 0) return {};
    return {.names = {"momentum"}, .bf16 = options.bf16_states};
  }

  static void apply(const SGDOptions& options, const std::vector<Update>& updates) {
    apply_rule<kernels::Rule::kSgd>(updates, [&](const Update& update) {
      return kernels::SgdStep{.lr = options.lr * update.lr_factor,
                              .l2 = update.weight_decay,
                              .momentum = options.momentum,
                              .share = update.step == 1 ? 1 : 1 - options.dampening,
                              .has_momentum = options.momentum > 0,
                              .nesterov = options.nesterov};
    });
  }
};

template class FlatOptimizer<SGDOptions>;

}  // namespace reigen::optim
