#include "reigen/optim/lars.h"

#include <cmath>

#include "optim/flat_optimizer_impl.h"
#include "optim/passes/run_rule.h"

namespace reigen::optim {

template <>
struct Rule<LARSOptions> {
  static constexpr const char* kName = "lars";

  static void check(const LARSOptions& options) {
    check_at_least_zero(kName, "momentum", options.momentum);
    check_above_zero(kName, "trust_coefficient", options.trust_coefficient);
  }

  static StateKinds states(const LARSOptions&) { return {.names = {"momentum"}}; }

  static double trust_ratio(const LARSOptions& options, const Update& update, const kernels::Squares& squares) {
    const double weight = std::sqrt(squares.first);
    const double gradient = std::sqrt(squares.second);
    if (!update.adapt || weight == 0 || gradient == 0) return 1;
    return options.trust_coefficient * weight / (gradient + update.weight_decay * weight);
  }

  static void apply(const LARSOptions& options, const std::vector<Update>& updates) {
    const auto squares = sums_of_rule<kernels::Rule::kValueSquares>(
        updates, [](const Update&) { return kernels::NoStep{}; }, [](const Update& update) { return update.adapt; });
    apply_rule<kernels::Rule::kLars>(updates, [&](const Update& update) {
      const auto i = static_cast<std::size_t>(&update - updates.data());
      return kernels::LarsStep{.rate = options.lr * update.lr_factor * trust_ratio(options, update, squares[i]),
                               .weight_decay = update.weight_decay,
                               .momentum = options.momentum};
    });
  }
};

template class FlatOptimizer<LARSOptions>;

}  // namespace reigen::optim
