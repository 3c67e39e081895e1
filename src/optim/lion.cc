#include "reigen/optim/lion.h"

#include "optim/flat_optimizer_impl.h"
#include "optim/passes/run_rule.h"

namespace reigen::optim {

template <>
struct Rule<LionOptions> {
  static constexpr const char* kName = "lion";

  static void check(const LionOptions& options) {
    check_below_one(kName, "betas.first", options.betas.first);
    check_below_one(kName, "betas.second", options.betas.second);
  }

  static StateKinds states(const LionOptions& options) { return {.names = {"exp_avg"}, .bf16 = options.bf16_states}; }

  static void apply(const LionOptions& options, const std::vector<Update>& updates) {
    apply_rule<kernels::Rule::kLion>(updates, [&](const Update& update) {
      return kernels::LionStep{.lr = options.lr * update.lr_factor,
                               .weight_decay = update.weight_decay,
                               .beta1 = options.betas.first,
                               .beta2 = options.betas.second};
    });
  }
};

template class FlatOptimizer<LionOptions>;

}  // namespace reigen::optim
