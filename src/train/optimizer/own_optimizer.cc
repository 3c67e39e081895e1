#include "train/optimizer/own_optimizer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <optional>
#include <set>
#include <string>
#include <utility>

#include "base/name_patterns.h"
#include "reigen/base/error.h"
#include "reigen/tensor/flat_parameters.h"
#include "train/optimizer/optimization.h"

namespace reigen::train {

namespace {

// The rates are meant as they are, whatever the batch is.
void leave_unscaled(OptimConfig& options) {
  options.lr_scaling = "none";
  options.base_batch.reset();
}

bool has_groups(const OptimConfig& options) {
  return !options.no_decay.empty() || !options.no_adapt.empty() || !options.lr_factors.empty();
}

[[noreturn]] void refuse(const std::string& what, const std::string& got, const std::string& expected,
                         const std::string& fix) {
  throw InvalidArgument(Report{.what = what, .got = got, .expected = expected, .fix = fix});
}

void take_from_task(Run& run) {
  const std::optional<OwnOptimizer> own = run.task.configure_optimizers(run.config);
  if (!own) return;
  OptimConfig& options = run.config.optim;
  own->rule.visit([&](const auto& rule) { run.own_groups = rule.groups; });
  options = with_rule(std::move(options), *own);
  run.own_rate = own->rate;
  if (has_groups(options) && !run.own_groups.empty()) {
    refuse("the task has groups of parameters of its own (configure_optimizers)",
           "optim.no_decay, optim.no_adapt or optim.lr_factors as well", "one of both",
           "leave these options out, or make the groups from them in the task");
  }
  if (run.rollbacks > 0) return;
  run.say(fmt::format("note: the task chooses its optimizer ({}{}{}); options of optim. count where it reads them",
                      options.rule.name,
                      run.own_groups.empty() ? "" : fmt::format(", {} groups of parameters", run.own_groups.size()),
                      run.own_rate ? ", the rate of each step" : ""));
}

// Options with which a task cannot make its steps itself.
void require_goes_with_manual_steps(const Config& config) {
  const TrainConfig& train = config.train;
  const std::vector<std::pair<std::string, bool>> refused = {
      {"run.find_lr", config.run.find_lr},  // it sets train.not_finite
      {"mesh.tp, mesh.pp or mesh.cp", config.mesh.tp > 1 || config.mesh.pp > 1 || config.mesh.cp > 1},
      {"train.micro_batch", train.micro_batch > 0},
      {"parallel.strategy", config.parallel.strategy.name != "plain"},
      {"train.precision fp16", train.precision == "fp16"},
      {"train.graph", train.graph != "none"},
      {"train.verify", train.verify > 0},
      {"train.not_finite skip", train.not_finite == "skip"},
      {"optim.no_decay, optim.no_adapt or optim.lr_factors", has_groups(config.optim)}};
  for (const auto& [name, is_set] : refused) {
    if (is_set) refuse("the task makes its steps itself (ManualTask)", name, "a run without it", "leave it out");
  }
}

void require_names(const std::vector<PartOptimizer>& parts) {
  if (parts.empty()) refuse("ManualTask::optimizers()", "no optimizer", "at least one", "return the task's optimizers");
  std::set<std::string> names;
  for (const PartOptimizer& part : parts) {
    if (part.parameters.empty()) {
      refuse(fmt::format("ManualTask::optimizers(): optimizer {}", part.name), "no pattern of parameters",
             "at least one", "say which parameters it steps, such as \"generator.*\"");
    }
    const bool is_text = !part.name.empty() && part.name.find_first_of("\n\r") == std::string::npos;
    if (!is_text || !names.insert(part.name).second) {
      refuse("ManualTask::optimizers(): a name is empty, has a line break, or occurs twice", part.name,
             "a name for each optimizer", "name the optimizers apart");
    }
  }
}

}  // namespace

void require_divided(const std::vector<PartOptimizer>& parts, const torch::nn::Module& module) {
  if (parts.empty()) return;
  std::set<std::string> unused;
  for (const PartOptimizer& part : parts) unused.insert(part.parameters.begin(), part.parameters.end());
  for (const tensor::NamedParameter& one : tensor::named_parameters(module)) {
    if (!one.parameter.requires_grad()) continue;
    std::vector<std::string> owners;
    for (const PartOptimizer& part : parts) {
      bool is_own = false;
      for (const std::string& pattern : part.parameters) {
        if (!base::matches_name(pattern, one.name, one.aliases)) continue;
        unused.erase(pattern);
        is_own = true;
      }
      if (is_own) owners.push_back(part.name);
    }
    if (owners.size() == 1) continue;
    refuse(fmt::format("ManualTask::optimizers(): parameter {}", one.name),
           owners.empty() ? "no optimizer has it" : fmt::format("{} have it", fmt::join(owners, " and ")),
           "one optimizer for each trainable parameter",
           "correct the patterns of the names, or freeze it (requires_grad_(false))");
  }
  if (unused.empty()) return;
  refuse("ManualTask::optimizers(): a pattern is the name of no trainable parameter", *unused.begin(),
         "patterns of the module's parameters", "correct it");
}

namespace {

void take_parts(Run& run) {
  require_goes_with_manual_steps(run.config);
  if (run.options.rate) {
    refuse("the task makes its steps itself (ManualTask)", "TrainerOptions::rate", "a rate for each optimizer",
           "give PartOptimizer::optimizer.rate");
  }
  run.parts = run.manual->optimizers(run.config);
  require_names(run.parts);
  if (run.rollbacks > 0) return;
  run.say(
      fmt::format("note: the task makes the steps of its optimizers ({}); of the options of optim., warm-up, schedule "
                  "and ema_decay count, and others where it reads them",
                  to_text(run.parts)));
}

}  // namespace

std::string to_text(const std::vector<PartOptimizer>& parts) {
  std::vector<std::string> words;
  for (const PartOptimizer& part : parts) words.push_back(fmt::format("{}: {}", part.name, part.optimizer.rule.name));
  return fmt::format("{}", fmt::join(words, ", "));
}

OptimConfig with_rule(OptimConfig options, const OwnOptimizer& own) {
  own.rule.visit([&](auto rule) {
    rule.groups.clear();
    options.lr = rule.lr;
    options.weight_decay = rule.weight_decay;
    options.rule = rule;
  });
  leave_unscaled(options);
  return options;
}

std::vector<layout::StateSpec> states_of(const Run& run) {
  if (run.parts.empty()) return states_of(run.config.optim);
  std::vector<layout::StateSpec> states;
  for (std::size_t i = 0; i < run.parts.size(); ++i) {
    for (layout::StateSpec state : states_of(with_rule(run.config.optim, run.parts[i].optimizer))) {
      state.optimizer = i;
      states.push_back(state);
    }
  }
  return states;
}

void take_own_optimizer(Run& run) {
  if (run.manual != nullptr)
    take_parts(run);
  else
    take_from_task(run);
  if (!run.options.rate) return;
  run.own_rate = run.options.rate;
  leave_unscaled(run.config.optim);
  run.config.optim.schedule = {};  // a plateau would lower the rate
}

}  // namespace reigen::train
