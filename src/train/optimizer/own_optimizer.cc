#include "train/optimizer/own_optimizer.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "reigen/base/error.h"

namespace reigen::train {

namespace {

// The rates are meant as they are, whatever the batch is.
void leave_unscaled(OptimConfig& options) {
  options.lr_scaling = "none";
  options.base_batch.reset();
}

void take_from_task(Run& run) {
  const std::optional<OwnOptimizer> own = run.task.configure_optimizers(run.config);
  if (!own) return;
  OptimConfig& options = run.config.optim;
  own->rule.visit([&](auto rule) {
    run.own_groups = std::exchange(rule.groups, {});
    options.lr = rule.lr;
    options.weight_decay = rule.weight_decay;
    options.rule = rule;
  });
  run.own_rate = own->rate;
  leave_unscaled(options);
  const bool has_groups = !options.no_decay.empty() || !options.no_adapt.empty() || !options.lr_factors.empty();
  if (has_groups && !run.own_groups.empty()) {
    throw InvalidArgument(Report{.what = "the task has groups of parameters of its own (configure_optimizers)",
                                 .got = "optim.no_decay, optim.no_adapt or optim.lr_factors as well",
                                 .fix = "leave these options out, or make the groups from them in the task"});
  }
  if (run.rollbacks > 0) return;
  run.say(fmt::format("note: the task chooses its optimizer ({}{}{}); options of optim. count where it reads them",
                      options.rule.name,
                      run.own_groups.empty() ? "" : fmt::format(", {} groups of parameters", run.own_groups.size()),
                      run.own_rate ? ", the rate of each step" : ""));
}

}  // namespace

void take_own_optimizer(Run& run) {
  take_from_task(run);
  if (!run.options.rate) return;
  run.own_rate = run.options.rate;
  leave_unscaled(run.config.optim);
  run.config.optim.schedule = {};  // a plateau would lower the rate
}

}  // namespace reigen::train
