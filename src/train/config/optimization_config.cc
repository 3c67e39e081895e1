#include "train/config/optimization_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "base/text.h"
#include "reigen/base/error.h"
#include "train/config/config_text.h"
#include "train/config/option_owners.h"

namespace reigen::train {
namespace {

using Names = std::vector<std::string>;

const Names kOptimizers{"adamw", "adam", "sgd", "adagrad", "rmsprop", "lion", "lars", "lamb"};
const Names kSchedules{"constant", "step", "multi_step", "cosine", "polynomial", "one_cycle", "warmup_stable_decay"};

const std::vector<OptionOwners> kOfOptimizers{
    {"momentum", {"sgd", "rmsprop", "lars"}},
    {"dampening", {"sgd"}},
    {"nesterov", {"sgd"}},
    {"beta1", {"adamw", "adam", "lion", "lamb"}},
    {"beta2", {"adamw", "adam", "lion", "lamb"}},
    {"eps", {"adamw", "adam", "adagrad", "rmsprop", "lamb"}},
    {"amsgrad", {"adamw", "adam"}},
    {"alpha", {"rmsprop"}},
    {"centered", {"rmsprop"}},
    {"lr_decay", {"adagrad"}},
    {"initial_accumulator_value", {"adagrad"}},
    {"trust_coefficient", {"lars"}},
    {"bf16_states", {"adamw", "adam", "lion", "sgd"}},
    {"no_adapt", {"lars", "lamb"}},
};

const std::vector<OptionOwners> kOfSchedules{
    {"min_lr_factor", {"cosine", "polynomial", "warmup_stable_decay"}},
    {"step_size", {"step"}},
    {"gamma", {"step", "multi_step"}},
    {"milestones", {"multi_step"}},
    {"power", {"polynomial"}},
    {"decay_steps", {"warmup_stable_decay"}},
    {"pct_start", {"one_cycle"}},
    {"div_factor", {"one_cycle"}},
    {"final_div_factor", {"one_cycle"}},
};

// Momentum 0 is none, which every optimizer has; run directories of earlier versions say so.
struct IsSet {
  bool operator()(const bool* value) const { return *value; }
  bool operator()(const std::int64_t*) const { return true; }
  bool operator()(const double*) const { return true; }
  bool operator()(const std::optional<std::int64_t>* value) const { return value->has_value(); }
  bool operator()(const std::optional<double>* value) const { return value->has_value(); }
  bool operator()(const std::string* value) const { return !value->empty(); }
};

void require_owners(const Config& config, const std::vector<OptionOwners>& all, const std::string& choice,
                    const std::string& chosen) {
  Config copy = config;
  std::vector<Field> table;
  add_optim(copy.optim, table);
  for (const Field& field : table) {
    if (!std::visit(IsSet(), field.value)) continue;
    if (field.key == "momentum" && config.optim.momentum == 0.0) continue;
    require_owner(all, field, choice, chosen);
  }
}

[[noreturn]] void refuse(const std::string& what, const std::string& fix) {
  throw InvalidArgument(Report{.what = what, .fix = fix});
}

std::vector<std::int64_t> milestones_of(const OptimConfig& config) {
  std::vector<std::int64_t> milestones;
  for (const std::string& item : items_of("optim.milestones", config.milestones)) {
    const auto step = base::parse<std::int64_t>(item);
    if (!step || *step < 0 || (!milestones.empty() && *step <= milestones.back())) {
      refuse(fmt::format("optim.milestones = {}: must be steps in rising order", config.milestones),
             "write them as \"1000, 2000\"");
    }
    milestones.push_back(*step);
  }
  return milestones;
}

Field row(const char* key, decltype(Field::value) value, const std::string& meaning, double low, double high,
          bool above_low = false) {
  Field field{"optim", key,  value,    owners_text(kOfOptimizers, key) + owners_text(kOfSchedules, key) + meaning,
              low,     high, above_low};
  return field;
}

Field text_row(const char* key, std::string* value, const std::string& meaning, const Names& choices = {}) {
  Field field{"optim", key, value, owners_text(kOfOptimizers, key) + owners_text(kOfSchedules, key) + meaning};
  field.choices = choices;
  return field;
}

void add_update_rule(OptimConfig& o, std::vector<Field>& table) {
  table.push_back(text_row("name", &o.name, "the optimizer", kOptimizers));
  table.push_back(row("lr", &o.lr, "learning rate; not set: the optimizer's own", 0, kHugeNumber, true));
  table.push_back(row("weight_decay", &o.weight_decay,
                      "decay of the weights (decoupled for adamw, lion and lamb); not set: the optimizer's own", 0,
                      kHugeNumber));
  table.push_back(row("momentum", &o.momentum, "share of the last step that the next one keeps", 0, 1));
  table.push_back(row("dampening", &o.dampening, "share of a gradient that the momentum leaves out", 0, 1));
  table.push_back(row("nesterov", &o.nesterov, "look ahead by a step of the momentum", 0, 0));
  table.push_back(row("beta1", &o.beta1, "how much of the mean of gradients a step keeps; below 1", 0, 0.9999999999));
  table.push_back(row("beta2", &o.beta2, "how much of the mean of squares a step keeps; below 1", 0, 0.9999999999));
  table.push_back(row("eps", &o.eps, "added to what a gradient is divided by", 1e-45, kHugeNumber));
  table.push_back(row("amsgrad", &o.amsgrad, "divide by the largest mean of squares so far", 0, 0));
  table.push_back(row("alpha", &o.alpha, "how much of the mean of squares a step keeps; below 1", 0, 0.9999999999));
  table.push_back(row("centered", &o.centered, "divide by the standard deviation", 0, 0));
  table.push_back(row("lr_decay", &o.lr_decay, "step t has lr / (1 + t * lr_decay)", 0, kHugeNumber));
  table.push_back(row("initial_accumulator_value", &o.initial_accumulator_value, "what the sum of squares begins with",
                      0, kHugeNumber));
  table.push_back(
      row("trust_coefficient", &o.trust_coefficient, "norm of a step / norm of its weights", 0, kHugeNumber, true));
  table.push_back(
      row("bf16_states", &o.bf16_states, "keep the state in bf16, rounded at random: half the memory", 0, 0));
}

void add_groups(OptimConfig& o, std::vector<Field>& table) {
  table.push_back(text_row("no_decay", &o.no_decay,
                           "names of parameters without weight decay, with * and ?, separated by commas; @vectors: all "
                           "with at most one dimension, which biases and norms are"));
  table.push_back(text_row("no_adapt", &o.no_adapt,
                           "names of parameters whose rate follows no norm; empty: those of optim.no_decay; none: all "
                           "follow"));
  table.push_back(text_row("lr_factors", &o.lr_factors,
                           "factors of the learning rate by name, e.g. head.*=10,embed*=0.1; the first that matches "
                           "counts"));
}

void add_schedule(OptimConfig& o, std::vector<Field>& table) {
  table.push_back(text_row("schedule", &o.schedule, "how the learning rate goes on after the warm-up", kSchedules));
  table.push_back(row("warmup_steps", &o.warmup_steps, "steps over which the learning rate grows linearly to optim.lr",
                      0, kLargest));
  table.push_back(row("min_lr_factor", &o.min_lr_factor, "share of optim.lr at the end", 0, 1));
  table.push_back(row("step_size", &o.step_size, "steps between two factors gamma", 1, kLargest));
  table.push_back(row("gamma", &o.gamma, "factor of the learning rate", 0, kHugeNumber));
  table.push_back(text_row("milestones", &o.milestones, "steps at which the factor gamma comes, e.g. 1000,2000"));
  table.push_back(row("power", &o.power, "1: a straight line", 0, 1e6));
  table.push_back(row("decay_steps", &o.decay_steps, "steps of the decay at the end", 0, kLargest));
  table.push_back(row("pct_start", &o.pct_start, "share of the steps in which the rate grows", 0, 1));
  table.push_back(row("div_factor", &o.div_factor, "optim.lr / the rate at the begin", 0, kHugeNumber, true));
  table.push_back(
      row("final_div_factor", &o.final_div_factor, "the rate at the begin / that at the end", 0, kHugeNumber, true));
  table.push_back(text_row("lr_scaling", &o.lr_scaling, "how optim.lr grows with global batch / optim.base_batch",
                           {"none", "linear", "sqrt"}));
  table.push_back(row("base_batch", &o.base_batch, "samples a step for which optim.lr is meant", 1, 1e9));
  table.push_back(row("ema_decay", &o.ema_decay,
                      "validate with, and save, an average of the weights of which a step keeps this share; 0: none", 0,
                      0.9999999999));
}

}  // namespace

void add_optim(OptimConfig& optim, std::vector<Field>& table) {
  add_update_rule(optim, table);
  add_groups(optim, table);
  add_schedule(optim, table);
}

std::vector<std::string> items_of(const std::string& key, const std::string& list) {
  std::vector<std::string> items;
  for (std::size_t begin = 0; begin < list.size() || (begin > 0 && begin == list.size());) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    const std::string item = list.substr(begin, end - begin);
    const std::size_t first = item.find_first_not_of(' ');
    if (first == std::string::npos) {
      refuse(fmt::format("{} = {}: an item is empty", key, list), "separate the items by one comma each");
    }
    items.push_back(item.substr(first, item.find_last_not_of(' ') - first + 1));
    if (end == list.size()) break;
    begin = end + 1;
  }
  return items;
}

std::vector<std::pair<std::string, double>> lr_factors_of(const OptimConfig& config) {
  std::vector<std::pair<std::string, double>> factors;
  for (const std::string& item : items_of("optim.lr_factors", config.lr_factors)) {
    const auto equals = item.rfind('=');
    const bool has_name = equals != std::string::npos && equals > 0;
    const double factor = has_name ? base::parse<double>(std::string_view(item).substr(equals + 1)).value_or(-1) : -1;
    if (!(factor >= 0) || std::isinf(factor)) {
      refuse(fmt::format("optim.lr_factors: {} is no name with a factor of at least 0", item),
             "write items as head.*=10, separated by commas");
    }
    factors.emplace_back(item.substr(0, equals), factor);
  }
  return factors;
}

optim::ScheduleOptions schedule_of(const OptimConfig& config, std::int64_t total_steps) {
  const auto kind = std::find(kSchedules.begin(), kSchedules.end(), config.schedule);
  if (kind == kSchedules.end()) {
    refuse(fmt::format("optim.schedule = {}: there is none of that name", config.schedule),
           fmt::format("choose one of {}", fmt::join(kSchedules, ", ")));
  }
  optim::ScheduleOptions schedule;
  schedule.kind = static_cast<optim::Schedule>(kind - kSchedules.begin());  // the order of the enumeration
  schedule.warmup_steps = config.warmup_steps;
  schedule.total_steps = total_steps;
  schedule.step_size = config.step_size.value_or(0);
  schedule.gamma = config.gamma.value_or(schedule.gamma);
  schedule.milestones = milestones_of(config);
  schedule.min_factor = config.min_lr_factor.value_or(schedule.min_factor);
  schedule.power = config.power.value_or(schedule.power);
  schedule.decay_steps = config.decay_steps.value_or(0);
  schedule.pct_start = config.pct_start.value_or(schedule.pct_start);
  schedule.div_factor = config.div_factor.value_or(schedule.div_factor);
  schedule.final_div_factor = config.final_div_factor.value_or(schedule.final_div_factor);
  return schedule;
}

double base_lr(const OptimConfig& config, double lr, std::int64_t global_batch) {
  if (config.lr_scaling == "none") return lr;
  const auto rule = config.lr_scaling == "linear" ? optim::LrScaling::kLinear : optim::LrScaling::kSqrt;
  return optim::scaled_lr(lr, rule, global_batch, config.base_batch.value_or(0));
}

void require_known_optimization(const Config& config) {
  const OptimConfig& optim = config.optim;
  require_owners(config, kOfOptimizers, "optim.name", optim.name);
  require_owners(config, kOfSchedules, "optim.schedule", optim.schedule);
  items_of("optim.no_decay", optim.no_decay);
  items_of("optim.no_adapt", optim.no_adapt);
  lr_factors_of(optim);
  milestones_of(optim);
  const auto require = [](bool there, const std::string& what, const std::string& fix) {
    if (!there) refuse(what, fix);
  };
  require(optim.schedule != "step" || optim.step_size.has_value(), "optim.schedule = step needs optim.step_size",
          "set optim.step_size to the steps between two factors");
  require(optim.schedule != "multi_step" || !optim.milestones.empty(),
          "optim.schedule = multi_step needs optim.milestones", "set optim.milestones, for example to 1000,2000");
  require(optim.schedule != "warmup_stable_decay" || optim.decay_steps.has_value(),
          "optim.schedule = warmup_stable_decay needs optim.decay_steps",
          "set optim.decay_steps, for example to a tenth of the steps");
  require(optim.lr_scaling == "none" || optim.base_batch.has_value(),
          fmt::format("optim.lr_scaling = {} needs optim.base_batch", optim.lr_scaling),
          "set optim.base_batch to the batch for which optim.lr was found");
  require(optim.lr_scaling != "none" || !optim.base_batch.has_value(),
          "optim.base_batch is set, but optim.lr_scaling is none", "set optim.lr_scaling to linear or sqrt");
  require(!optim.nesterov || optim.momentum.value_or(0) > 0, "optim.nesterov needs optim.momentum",
          "set optim.momentum, for example to 0.9");
  require(!config.train.loss_scale || config.train.precision == "fp16", "train.loss_scale needs train.precision fp16",
          "leave it out");
  // Those remember what gradients were, or let ranks step by themselves.
  const std::string& strategy = config.parallel.strategy;
  const bool forgets = strategy == "plain" || strategy == "bf16" || strategy == "fp16";
  const std::string& not_finite = config.train.not_finite;
  require(not_finite == "stop" || forgets,
          fmt::format("train.not_finite = {} does not go with parallel.strategy {}", not_finite, strategy),
          "leave one of them out; plain, bf16 and fp16 go with it");
  require(not_finite != "rollback" || config.checkpoint.every_steps > 0,
          "train.not_finite = rollback needs checkpoint.every_steps", "set it to the steps that may be lost");
  require(!optim.dampening || optim.momentum.value_or(0) > 0, "optim.dampening needs optim.momentum",
          "set optim.momentum, for example to 0.9");
  require(!optim.bf16_states || config.train.precision != "fp64",
          "optim.bf16_states does not go with train.precision fp64", "leave one of them out");
  require(!optim.bf16_states || !optim.amsgrad, "optim.bf16_states and optim.amsgrad do not go together",
          "leave one of them out");
  require(!optim.bf16_states || optim.name != "sgd" || optim.momentum.value_or(0) > 0,
          "optim.bf16_states: sgd without optim.momentum has no state", "leave optim.bf16_states out");
}

}  // namespace reigen::train
