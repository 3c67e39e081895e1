#include "reigen/optim/adam.h"

#include "optim/adam_step.h"
#include "optim/flat_optimizer_impl.h"

namespace reigen::optim {

template <>
struct Rule<AdamOptions> {
  static constexpr const char* kName = "adam";

  static void check(const AdamOptions& options) { check_adam(kName, options); }
  static StateKinds states(const AdamOptions& options) { return adam_states(options); }
  static void apply(const AdamOptions& options, const std::vector<Update>& updates) {
    apply_adam(options, updates, /*decoupled=*/false);
  }
};

template class FlatOptimizer<AdamOptions>;

}  // namespace reigen::optim
