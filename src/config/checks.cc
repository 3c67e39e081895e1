#include "config/checks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "base/text.h"
#include "reigen/base/error.h"
#include "reigen/config/duration.h"

namespace reigen::config {
namespace {

// A combination of options that is refused if `holds` is true.
struct Conflict {
  bool holds;
  std::string what;
  std::string fix = "leave one of the two out";
};

void refuse(const std::vector<Conflict>& conflicts) {
  for (const Conflict& one : conflicts)
    if (one.holds) throw InvalidArgument(Report{.what = one.what, .fix = one.fix});
}

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

void check_optimization(const Config& config) {
  const OptimConfig& optim = config.optim;
  items_of("optim.no_decay", optim.no_decay);
  items_of("optim.no_adapt", optim.no_adapt);
  lr_factors_of(optim);
  const bool warms_up = optim.warmup_steps > 0 || !optim.warmup.empty();
  refuse({{optim.warmup_steps > 0 && !optim.warmup.empty(),
           fmt::format("optim.warmup and optim.warmup_steps say the same: {} and {}", optim.warmup, optim.warmup_steps),
           "leave optim.warmup_steps out"},
          {optim.warmup_from && !warms_up, "optim.warmup_from needs optim.warmup",
           "set optim.warmup, for example to \"5 epochs\""}});
  if (!optim.warmup.empty()) parse_steps_or_epochs("optim.warmup", optim.warmup);
  optim.schedule.visit([](const auto&) {});  // throws for a name that a program has misspelled
  optim.rule.visit([&](const auto& rule) {
    if constexpr (requires { rule.nesterov; }) {
      const bool dampened = optim.rule.given.contains("dampening");
      const std::string fix = "set optim.momentum, for example to 0.9";
      refuse({{rule.nesterov && rule.momentum == 0, "optim.nesterov needs optim.momentum", fix},
              {dampened && rule.momentum == 0, "optim.dampening needs optim.momentum", fix},
              {rule.bf16_states && rule.momentum == 0,
               "optim.bf16_states needs optim.momentum: sgd without it has no state", fix}});
    }
    if constexpr (requires { rule.bf16_states; })
      refuse({{rule.bf16_states && config.train.precision == "fp64",
               "optim.bf16_states and train.precision fp64 do not go together"}});
    if constexpr (requires { rule.amsgrad; })
      refuse({{rule.bf16_states && rule.amsgrad, "optim.bf16_states and optim.amsgrad do not go together"}});
  });
  refuse({{config.train.weights != "own" && config.train.verify > 0,
           "train.weights bf16 and train.verify do not go together: the check compares fp32 weights"}});
  const parallel::AnyStrategy& strategy = config.parallel.strategy;
  const std::string& not_finite = config.train.not_finite;
  // True for a strategy that keeps parts of earlier gradients, or lets each rank step with its own gradients.
  const bool remembers = keeps_errors(strategy) || acts_on_weights(strategy);
  refuse({{not_finite != "stop" && remembers,
           fmt::format("train.not_finite {} and parallel.strategy {} do not go together", not_finite, strategy.name),
           "leave one of them out; the strategies plain, bf16 and fp16 go with it"},
          {not_finite == "rollback" && config.checkpoint.every_steps == 0 && config.checkpoint.every.empty(),
           "train.not_finite rollback needs checkpoint.every", "set it to the number of steps that may be lost"}});
}

void check_graph(const TrainConfig& train) {
  const bool captures = train.graph != "none";
  refuse({{captures && train.precision == "fp16",
           "train.graph step and train.precision fp16 do not go together: the loss scale changes",
           "choose train.precision bf16, or leave train.graph out"},
          {captures && train.activation_checkpoint > 0,
           "train.graph step and train.activation_checkpoint do not go together"}});
}

void check_parallel(const Config& config) {
  const ParallelConfig& parallel = config.parallel;
  const std::string& shard = parallel.shard;
  const std::string strategy = "parallel.strategy " + parallel.strategy.name;
  const auto apart = [&](const std::string& other, const char* why) {
    return fmt::format("parallel.shard {} and {} do not go together: {}", shard, other, why);
  };
  const bool divides = shard == "optimizer" || shard == "gradients" || shard == "parameters";
  const std::string buckets = set_for_buckets(parallel);
  const bool divides_model = config.mesh.tp > 1 || config.mesh.pp > 1;
  const std::string mesh = config.mesh.tp > 1 ? "mesh.tp" : "mesh.pp";
  refuse(
      {{keeps_errors(parallel.strategy) && config.train.precision == "fp16",
        fmt::format("train.precision fp16 and {} do not go together: the strategy keeps errors of gradients for later "
                    "steps, which have another loss scale",
                    strategy),
        "choose train.precision bf16, or another strategy"},
       {divides && acts_on_weights(parallel.strategy),
        apart(strategy, "with this strategy each rank has weights of its own")},
       {shard == "gradients" && !buckets.empty(),
        apart(buckets, "each rank averages its share of the gradients in its step"),
        fmt::format("leave {} out, or choose parallel.shard optimizer or none", buckets)},
       {shard == "parameters" && parallel.strategy.name != "plain",
        apart(strategy, "each rank averages its share of the gradients"),
        "choose parallel.strategy plain, or parallel.shard optimizer or none"},
       {config.mesh.sequence && config.mesh.tp == 1, "mesh.sequence needs mesh.tp", "set mesh.tp to 2 or more"},
       {divides_model && config.run.save_initial,
        fmt::format("{} and run.save_initial do not go together yet: ranks hold parts of the weights", mesh),
        fmt::format("start the run once without {}: initial values depend on train.seed only", mesh)},
       {divides_model && config.train.not_finite == "rollback",
        fmt::format("{} and train.not_finite rollback do not go together yet", mesh),
        "choose train.not_finite stop or skip"},
       {divides_model && keeps_errors(parallel.strategy),
        fmt::format("{} and {} do not go together yet: the strategy keeps errors of this rank's gradients", mesh,
                    strategy),
        fmt::format("choose parallel.strategy plain, bf16 or fp16, or leave {} out", mesh)},
       {divides_model && acts_on_weights(parallel.strategy),
        fmt::format("{} and {} do not go together: with this strategy each rank has weights of its own", mesh,
                    strategy),
        fmt::format("choose parallel.strategy plain, or leave {} out", mesh)},
       {config.mesh.pp == 1 && config.mesh.schedule != "1f1b", "mesh.schedule needs mesh.pp",
        "set mesh.pp to 2 or more"},
       {config.mesh.pp == 1 && config.mesh.virtual_stages > 1, "mesh.virtual_stages needs mesh.pp",
        "set mesh.pp to 2 or more"},
       {config.mesh.pp == 1 && config.mesh.cut != "size", "mesh.cut needs mesh.pp", "set mesh.pp to 2 or more"},
       {config.mesh.pp > 1 && parallel.unit_size > 0,
        "mesh.pp and parallel.unit_size do not go together: stages are made of the model's own units"},
       {config.mesh.pp > 1 && config.train.graph != "none", "mesh.pp and train.graph do not go together"},
       {parallel.reshard_to > 0 && !parallel.reshard_after_forward,
        "parallel.reshard_to needs parallel.reshard_after_forward true"}});
}

}  // namespace

std::vector<std::string> items_of(const std::string& key, const std::string& list) {
  std::vector<std::string> items = base::split(list, ',');
  const bool has_empty = std::find(items.begin(), items.end(), "") != items.end();
  refuse({{has_empty, fmt::format("{} = {}: an item is empty", key, list), "separate the items by one comma each"}});
  return items;
}

std::vector<std::pair<std::string, double>> lr_factors_of(const OptimConfig& config) {
  std::vector<std::pair<std::string, double>> factors;
  for (const std::string& item : items_of("optim.lr_factors", config.lr_factors)) {
    const auto equals = item.rfind('=');
    const bool has_name = equals != std::string::npos && equals > 0;
    const double factor = has_name ? base::parse<double>(std::string_view(item).substr(equals + 1)).value_or(-1) : -1;
    refuse({{!(factor >= 0) || std::isinf(factor),
             fmt::format("optim.lr_factors: {} is no name with a factor of at least 0", item),
             "write items as head.*=10, separated by commas"}});
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
    throw InvalidArgument(Report{.what = "train.device is not the name of a device",
                                 .got = config.device,
                                 .expected = "cpu, cuda, cuda:0, cuda:1, ..., or auto",
                                 .fix = "correct train.device; `reigen devices` lists the GPUs"});
  }
}

void require_optimization(const Config& config) {
  Config copy = config;
  Fields rows;
  describe(rows, copy.optim);
  describe(rows, copy.train);
  require_owned(rows.rows);
  check_optimization(config);
}

void require_consistent(const Config& config) {
  Config copy = config;
  require_owned(fields(copy));
  device_of(config.train);
  check_optimization(config);
  check_graph(config.train);
  check_parallel(config);
  parse_duration("validate.every", config.validate.every);
  if (!config.train.max_time.empty() &&
      parse_duration("train.max_time", config.train.max_time).unit != Duration::Unit::kSeconds) {
    throw InvalidArgument(Report{.what = "train.max_time is a time",
                                 .got = config.train.max_time,
                                 .expected = "a number with s, min or h, as 45 min",
                                 .fix = "train.max_steps and train.epochs count steps and epochs"});
  }
  refuse(
      {{config.run.fast_dev > 0 && (!config.run.resume.empty() || !config.run.dir.empty()),
        "run.fast_dev leaves nothing on the disk, so it has neither run.dir nor run.resume", "leave them out"},
       {config.run.find_lr && (!config.run.resume.empty() || config.run.fast_dev > 0),
        "run.find_lr begins with new weights or run.weights, without run.resume and run.fast_dev", "leave them out"}});
  if (!config.log.histograms.empty()) parse_duration("log.histograms", config.log.histograms);
  refuse({{!config.log.tensorboard && (!config.log.histograms.empty() || config.log.images > 0),
           "log.histograms and log.images are written for TensorBoard, and log.tensorboard is false",
           "leave them out, or log.tensorboard"}});
  if (!config.checkpoint.every.empty()) {
    parse_duration("checkpoint.every", config.checkpoint.every);
    if (config.checkpoint.every_steps > 0) {
      throw InvalidArgument(
          Report{.what = "checkpoint.every and checkpoint.every_steps say the same",
                 .got = fmt::format("{} and {}", config.checkpoint.every, config.checkpoint.every_steps),
                 .fix = "leave checkpoint.every_steps out"});
    }
  }
  const CheckpointConfig& checkpoint = config.checkpoint;
  refuse({{(checkpoint.mode != "min" || checkpoint.top_k != 1) && checkpoint.monitor.empty(),
           "checkpoint.mode and top_k need checkpoint.monitor", "set checkpoint.monitor, for example to test_loss"}});
  const StopConfig usual;
  const StopConfig& stop = config.stop;
  const bool is_set =
      stop.mode != usual.mode || stop.patience != usual.patience || stop.min_delta != 0 || stop.threshold;
  refuse({{is_set && stop.monitor.empty(), "stop.mode, patience, min_delta and threshold need stop.monitor",
           "set stop.monitor, for example to test_loss"}});
}

}  // namespace reigen::config
