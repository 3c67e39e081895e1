#include "config/checks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string_view>

#include "base/check.h"
#include "base/text.h"
#include "reigen/base/error.h"
#include "reigen/config/duration.h"

namespace reigen::config {
namespace {

[[noreturn]] void refuse(const std::string& what, const std::string& why, const std::string& fix) {
  throw InvalidArgument(Report{.what = why.empty() ? what : fmt::format("{}: {}", what, why), .fix = fix});
}

// What a configuration says, and rules about options that are named by text. An option is named with a value
// ("train.precision fp16"), or alone ("mesh.tp"). An option that is named alone counts as said if its value is not the
// default.
class Rules {
 public:
  explicit Rules(const Config& config) : config_(config), rows_(fields(config_)), usual_rows_(fields(usual_)) {}

  bool says(const std::string& option) const {
    const std::size_t end = option.find(' ');
    const Field& row = row_of(rows_, option.substr(0, end));
    if (end != std::string::npos) {
      const std::string value = option.substr(end + 1);
      REIGEN_ASSERT(row.is_switch() || std::count(row.choices.begin(), row.choices.end(), value) == 1,
                    "a rule names {}, which is no value", option);
      return row.text() == value;
    }
    return !row.is_none() && row.text() != row_of(usual_rows_, option).text();
  }

  void apart(const std::string& one, const std::string& other, const std::string& why = {},
             const std::string& fix = "leave one of the two out") const {
    const bool has_both = says(one) & says(other);  // both are asked, so that a wrong name is found in every run
    if (has_both) refuse(fmt::format("{} and {} do not go together", one, other), why, fix);
  }

  void needs(const std::string& option, const std::string& other, const std::string& why = {}) const {
    const Field& usual = row_of(usual_rows_, other);
    const std::string than = usual.is_none() ? "" : fmt::format(" to another value than {}", usual.text());
    const std::string fix = fmt::format("set {}{}: {}", other, than, row_of(rows_, other).meaning);
    if (says(option) & !says(other)) refuse(fmt::format("{} needs {}", option, other), why, fix);
  }

  // Checks the rules that the rows of these sections say themselves: Field::owners and Field::needs. Without
  // sections it checks all rows.
  void of_rows(const std::set<std::string>& sections = {}) const {
    std::vector<Field> rows = rows_;
    std::erase_if(rows, [&](const Field& row) { return !sections.empty() && !sections.contains(row.section); });
    require_owned(rows);
    for (const Field& row : rows)
      if (!row.needs.empty()) needs(row.name(), row.section + "." + row.needs);
  }

 private:
  static const Field& row_of(const std::vector<Field>& rows, const std::string& name) {
    const Field* const row = find(rows, name);
    REIGEN_ASSERT(row != nullptr, "a rule names {}, which is no option", name);
    return *row;
  }

  Config config_;
  Config usual_ = {};
  std::vector<Field> rows_;
  std::vector<Field> usual_rows_;
};

bool keeps_errors(const parallel::AnyStrategy& strategy) {
  bool keeps = false;
  strategy.visit([&](const auto& options) {
    keeps = requires { options.kKeepsErrors; };
  });
  return keeps;
}

// Returns the options that were set and need an exchange of gradients in buckets, as text: "parallel.bucket_mb 5,
// parallel.overlap false".
std::string set_for_buckets(const ParallelConfig& config) {
  const ParallelConfig usual;
  std::vector<std::string> set;
  if (config.strategy.name != usual.strategy.name) set.push_back("parallel.strategy " + config.strategy.name);
  if (config.bucket_mb != usual.bucket_mb) set.push_back(fmt::format("parallel.bucket_mb {}", config.bucket_mb));
  if (config.overlap != usual.overlap) set.push_back(fmt::format("parallel.overlap {}", config.overlap));
  return fmt::format("{}", fmt::join(set, ", "));
}

void check_optimization(const Config& config, const Rules& rules) {
  const OptimConfig& optim = config.optim;
  optim.rule.visit([](const auto&) {});  // throws for a name that a program has misspelled
  optim.schedule.visit([](const auto&) {});
  items_of("optim.no_decay", optim.no_decay);
  items_of("optim.no_adapt", optim.no_adapt);
  lr_factors_of(optim);
  if (!optim.warmup.empty()) parse_steps_or_epochs("optim.warmup", optim.warmup);
  rules.apart("optim.warmup", "optim.warmup_steps", "they say the same", "leave optim.warmup_steps out");
  if (optim.warmup_steps == 0) rules.needs("optim.warmup_from", "optim.warmup");
  if (optim.rule.name == optim::SGDOptions::kName)
    rules.needs("optim.bf16_states", "optim.momentum", "sgd without it has no state");
  rules.apart("optim.bf16_states", "train.precision fp64");
  rules.apart("optim.bf16_states", "optim.amsgrad");
  rules.apart("train.weights bf16", "train.verify", "the check compares fp32 weights");
  const parallel::AnyStrategy& strategy = config.parallel.strategy;
  // A strategy may keep parts of earlier gradients, or let each rank step with its own gradients.
  if (keeps_errors(strategy) || acts_on_weights(strategy)) {
    for (const std::string policy : {"train.not_finite skip", "train.not_finite rollback"})
      rules.apart(policy, "parallel.strategy " + strategy.name, {},
                  "leave one of them out; the strategies plain, bf16 and fp16 go with it");
  }
  if (config.checkpoint.every_steps == 0) rules.needs("train.not_finite rollback", "checkpoint.every");
}

// What a rank holds and sends.
void check_parallel(const ParallelConfig& config, const Rules& rules) {
  const std::string strategy = "parallel.strategy " + config.strategy.name;
  const bool keeps = keeps_errors(config.strategy);
  const bool acts = acts_on_weights(config.strategy);
  const std::string own_weights = "with this strategy each rank has weights of its own";
  const std::string buckets = set_for_buckets(config);
  if (keeps)
    rules.apart("train.precision fp16", strategy,
                "the strategy keeps errors of gradients for later steps, which have another loss scale",
                "choose train.precision bf16, or another strategy");
  for (const std::string shard : {"optimizer", "gradients", "parameters"})
    if (acts) rules.apart("parallel.shard " + shard, strategy, own_weights);
  if (!buckets.empty() && rules.says("parallel.shard gradients"))
    refuse(fmt::format("parallel.shard gradients and {} do not go together", buckets),
           "each rank averages its share of the gradients in its step",
           fmt::format("leave {} out, or choose parallel.shard optimizer or none", buckets));
  if (strategy != "parallel.strategy plain")
    rules.apart("parallel.shard parameters", strategy, "each rank averages its share of the gradients",
                "choose parallel.strategy plain, or parallel.shard optimizer or none");
  rules.apart("parallel.reshard_to", "parallel.reshard_after_forward false");
  for (const std::string mesh : {"mesh.tp", "mesh.pp"}) {
    rules.apart(mesh, "run.save_initial", "ranks hold parts of the weights",
                fmt::format("start the run once without {}: initial values depend on train.seed only", mesh));
    rules.apart(mesh, "train.not_finite rollback", {}, "choose train.not_finite stop or skip");
    const std::string fix = fmt::format("choose parallel.strategy plain, bf16 or fp16, or leave {} out", mesh);
    if (keeps) rules.apart(mesh, strategy, "the strategy keeps errors of this rank's gradients", fix);
    if (acts) rules.apart(mesh, strategy, own_weights, fix);
  }
  rules.apart("mesh.pp", "parallel.unit_size", "stages are made of the model's own units");
  rules.apart("mesh.pp", "train.graph");
  rules.apart("train.graph", "train.precision fp16", "the loss scale changes",
              "choose train.precision bf16, or leave train.graph out");
  rules.apart("train.graph", "train.activation_checkpoint");
}

// When something happens in a run, and what a run leaves.
void check_run(const Config& config, const Rules& rules) {
  parse_duration("validate.every", config.validate.every);
  for (const auto& [option, text] :
       {std::pair("log.histograms", config.log.histograms), {"checkpoint.every", config.checkpoint.every}})
    if (!text.empty()) parse_duration(option, text);
  rules.apart("checkpoint.every", "checkpoint.every_steps", "they say the same", "leave checkpoint.every_steps out");
  if (const std::string& time = config.train.max_time;
      !time.empty() && parse_duration("train.max_time", time).unit != Duration::Unit::kSeconds)
    refuse("train.max_time is a time", fmt::format("got '{}'", time),
           "write it with s, min or h, as 45 min; train.max_steps and train.epochs count steps and epochs");
  for (const std::string option : {"run.dir", "run.resume"})
    rules.apart("run.fast_dev", option, "run.fast_dev leaves nothing on the disk");
  rules.apart("run.find_lr", "run.resume", "run.find_lr begins with new weights or run.weights");
  rules.apart("run.find_lr", "run.fast_dev", "each of the two is a short run of its own");
  for (const std::string option : {"log.histograms", "log.images"})
    rules.apart("log.tensorboard false", option, option + " is written for TensorBoard");
}

}  // namespace

std::vector<std::string> items_of(const std::string& key, const std::string& list) {
  std::vector<std::string> items = base::split(list, ',');
  const bool has_empty = std::find(items.begin(), items.end(), "") != items.end();
  if (has_empty) refuse(fmt::format("{} = {}", key, list), "an item is empty", "separate the items by one comma each");
  return items;
}

std::vector<std::pair<std::string, double>> lr_factors_of(const OptimConfig& config) {
  std::vector<std::pair<std::string, double>> factors;
  for (const std::string& item : items_of("optim.lr_factors", config.lr_factors)) {
    const auto equals = item.rfind('=');
    const bool has_name = equals != std::string::npos && equals > 0;
    const double factor = has_name ? base::parse<double>(std::string_view(item).substr(equals + 1)).value_or(-1) : -1;
    if (!(factor >= 0) || std::isinf(factor))
      refuse("optim.lr_factors", fmt::format("{} is no name with a factor of at least 0", item),
             "write items as head.*=10, separated by commas");
    factors.emplace_back(item.substr(0, equals), factor);
  }
  return factors;
}

bool lets_gradients_stay(const ParallelConfig& config) { return set_for_buckets(config).empty(); }

int copies_held(const parallel::AnyStrategy& strategy) {
  int copies = 0;
  strategy.visit([&](const auto& options) {
    if constexpr (requires { options.kHolds; }) copies = options.kHolds;
  });
  return copies;
}

bool acts_on_weights(const parallel::AnyStrategy& strategy) {
  bool acts = false;
  strategy.visit([&](const auto& options) {
    if constexpr (requires { options.of; })
      acts = options.of == parallel::AdasumOf::kSteps;
    else
      acts = requires { options.kOfWeights; };
  });
  return acts;
}

std::optional<Device> device_of(const TrainConfig& config) {
  if (config.device == "auto") return std::nullopt;
  try {
    return parse_device(config.device);
  } catch (const InvalidArgument&) {
    refuse("train.device is not the name of a device", fmt::format("got '{}'", config.device),
           "choose cpu, cuda, cuda:0, cuda:1, ..., or auto; `reigen devices` lists the GPUs");
  }
}

void require_optimization(const Config& config) {
  const Rules rules(config);
  rules.of_rows({"optim", "train"});
  check_optimization(config, rules);
}

void require_consistent(const Config& config) {
  const Rules rules(config);
  rules.of_rows();
  device_of(config.train);
  check_optimization(config, rules);
  check_parallel(config.parallel, rules);
  check_run(config, rules);
}

}  // namespace reigen::config
