#include "reigen/optim/adamw.h"

#include "optim/adam_step.h"
#include "optim/flat_optimizer_impl.h"

namespace reigen::optim {

template <>
struct Rule<AdamWOptions> {
  static constexpr const char* kName = "adamw";

  static void check(const AdamWOptions& options) { check_adam(kName, options); }
  static StateKinds states(const AdamWOptions& options) { return adam_states(options); }
  static void apply(const AdamWOptions& options, const std::vector<Update>& updates) {
    apply_adam(options, updates, /*decoupled=*/true);
  }
};

template class FlatOptimizer<AdamWOptions>;

}  // namespace reigen::optim
