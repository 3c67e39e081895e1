#include "config/checks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "base/text.h"
#include "reigen/base/error.h"

namespace reigen::config {
namespace {

void require(bool there, const std::string& what, const std::string& fix) {
  if (!there) throw InvalidArgument(Report{.what = what, .fix = fix});
}

bool keeps_errors(const parallel::AnyStrategy& strategy) {
  bool keeps = false;
  strategy.visit([&](const auto& options) {
    keeps = requires { options.kKeepsErrors; };
  });
  return keeps;
}

void check_optimization(const Config& config) {
  const OptimConfig& optim = config.optim;
  items_of("optim.no_decay", optim.no_decay);
  items_of("optim.no_adapt", optim.no_adapt);
  lr_factors_of(optim);
  const std::string& schedule = optim.schedule.name;
  optim.schedule.visit([&](const auto& kind) {
    const optim::ScheduleOptions& o = kind.options;
    require(schedule != "step" || o.step_size > 0, "optim.schedule = step needs optim.step_size",
            "set optim.step_size to the steps between two factors");
    require(schedule != "multi_step" || !o.milestones.empty(), "optim.schedule = multi_step needs optim.milestones",
            "set optim.milestones, for example to 1000,2000");
    require(schedule != "warmup_stable_decay" || o.decay_steps > 0 || optim.schedule.given.contains("decay_steps"),
            "optim.schedule = warmup_stable_decay needs optim.decay_steps",
            "set optim.decay_steps, for example to a tenth of the steps");
  });
  require(optim.lr_scaling == "none" || optim.base_batch.has_value(),
          fmt::format("optim.lr_scaling = {} needs optim.base_batch", optim.lr_scaling),
          "set optim.base_batch to the batch for which optim.lr was found");
  require(optim.lr_scaling != "none" || !optim.base_batch.has_value(),
          "optim.base_batch is set, but optim.lr_scaling is none", "set optim.lr_scaling to linear or sqrt");
  const bool fp64 = config.train.precision == "fp64";
  optim.rule.visit([&](const auto& rule) {
    if constexpr (requires { rule.nesterov; }) {
      require(!rule.nesterov || rule.momentum > 0, "optim.nesterov needs optim.momentum",
              "set optim.momentum, for example to 0.9");
      require(!optim.rule.given.contains("dampening") || rule.momentum > 0, "optim.dampening needs optim.momentum",
              "set optim.momentum, for example to 0.9");
      require(!rule.bf16_states || rule.momentum > 0, "optim.bf16_states: sgd without optim.momentum has no state",
              "leave optim.bf16_states out");
    }
    if constexpr (requires { rule.bf16_states; })
      require(!rule.bf16_states || !fp64, "optim.bf16_states does not go with train.precision fp64",
              "leave one of them out");
    if constexpr (requires { rule.amsgrad; })
      require(!rule.bf16_states || !rule.amsgrad, "optim.bf16_states and optim.amsgrad do not go together",
              "leave one of them out");
  });
  require(!config.train.loss_scale || config.train.precision == "fp16", "train.loss_scale needs train.precision fp16",
          "leave it out");
  const std::string& not_finite = config.train.not_finite;
  // `forgets` is false for strategies that keep parts of earlier gradients, and for strategies with which each rank
  // steps with its own gradients.
  const bool forgets = !keeps_errors(config.parallel.strategy) && !acts_on_weights(config.parallel.strategy);
  require(not_finite == "stop" || forgets,
          fmt::format("train.not_finite = {} does not go with parallel.strategy {}", not_finite,
                      config.parallel.strategy.name),
          "leave one of them out; plain, bf16 and fp16 go with it");
  require(not_finite != "rollback" || config.checkpoint.every_steps > 0,
          "train.not_finite = rollback needs checkpoint.every_steps", "set it to the steps that may be lost");
}

// The options that make lets_gradients_stay() false, as text: "parallel.bucket_mb 5, parallel.overlap false".
std::string set_for_travelling(const ParallelConfig& config) {
  const ParallelConfig usual;
  std::vector<std::string> set;
  if (config.strategy.name != usual.strategy.name) set.push_back("parallel.strategy " + config.strategy.name);
  if (config.bucket_mb != usual.bucket_mb) set.push_back(fmt::format("parallel.bucket_mb {}", config.bucket_mb));
  if (config.overlap != usual.overlap) set.push_back(fmt::format("parallel.overlap {}", config.overlap));
  return fmt::format("{}", fmt::join(set, ", "));
}

void require_strategy(const Config& config) {
  const parallel::AnyStrategy& strategy = config.parallel.strategy;
  if (keeps_errors(strategy) && config.train.precision == "fp16") {
    throw InvalidArgument(
        Report{.what = fmt::format("train.precision fp16 and parallel.strategy {} do not go together", strategy.name),
               .got = "gradients that carry a loss scale, of which some is kept for later steps with another scale",
               .fix = "choose train.precision bf16, or another strategy"});
  }
}

void require_shard(const Config& config) {
  const ParallelConfig& parallel = config.parallel;
  const std::string& shard = parallel.shard;
  const std::string& strategy = parallel.strategy.name;
  const bool divides_weights = shard == "parameters";
  const bool divides_gradients = shard == "gradients" || divides_weights;
  if ((divides_gradients || shard == "optimizer") && acts_on_weights(parallel.strategy)) {
    throw InvalidArgument(
        Report{.what = fmt::format("parallel.shard {} and parallel.strategy {} do not go together", shard, strategy),
               .got = "a strategy by which ranks' weights differ between steps, and weights that ranks have together",
               .fix = "leave one of the two out"});
  }
  const auto refuse = [&](bool bad, const std::string& what, const std::string& got, const std::string& expected,
                          const std::string& fix) {
    if (bad) throw InvalidArgument(Report{.what = what, .got = got, .expected = expected, .fix = fix});
  };
  const std::string got_shard = "parallel.shard " + shard;
  refuse(shard == "gradients" && !lets_gradients_stay(parallel),
         "parallel.shard gradients and options of gradients that travel do not go together",
         set_for_travelling(parallel), "none: each rank averages its share in its step",
         "leave it out, or choose parallel.shard optimizer or none");
  refuse(divides_weights && strategy != "plain", "parallel.shard parameters and a strategy do not go together",
         "parallel.strategy " + strategy, "none: each rank averages its share",
         "leave it out, or choose parallel.shard optimizer or none");
  refuse(parallel.replicas > 1 && (shard == "none" || shard == "auto"),
         "parallel.replicas is for ranks that divide what they hold", got_shard, "optimizer, gradients or parameters",
         "leave it out, or choose one of these");
  refuse(!parallel.reshard_after_forward && !divides_weights,
         "parallel.reshard_after_forward false is for parallel.shard parameters", got_shard, "",
         "leave it out, or choose parallel.shard parameters");
  refuse(parallel.reshard_to > 0 && !(divides_weights && parallel.reshard_after_forward),
         fmt::format("parallel.reshard_to {} is for weights that leave", parallel.reshard_to),
         fmt::format("{}, parallel.reshard_after_forward {}", got_shard, parallel.reshard_after_forward),
         "parallel.shard parameters, parallel.reshard_after_forward true", "leave it out, or choose these");
  const auto for_what_is_divided = [&](const std::string& option, bool set, bool fits, const char* expected) {
    refuse(set && !fits, option + " is for what ranks divide", got_shard, fmt::format("parallel.shard {}", expected),
           "leave it out, or choose that");
  };
  for_what_is_divided("parallel.gather_type " + parallel.gather_type, parallel.gather_type != "own", divides_weights,
                      "parameters");
  for_what_is_divided("parallel.reduce_type " + parallel.reduce_type, parallel.reduce_type != "own", divides_gradients,
                      "gradients or parameters");
  for_what_is_divided(fmt::format("parallel.unit_size {}", parallel.unit_size), parallel.unit_size > 0,
                      divides_gradients, "gradients or parameters");
}

}  // namespace

std::vector<std::string> items_of(const std::string& key, const std::string& list) {
  std::vector<std::string> items = base::split(list, ',');
  for (const std::string& item : items) {
    require(!item.empty(), fmt::format("{} = {}: an item is empty", key, list), "separate the items by one comma each");
  }
  return items;
}

std::vector<std::pair<std::string, double>> lr_factors_of(const OptimConfig& config) {
  std::vector<std::pair<std::string, double>> factors;
  for (const std::string& item : items_of("optim.lr_factors", config.lr_factors)) {
    const auto equals = item.rfind('=');
    const bool has_name = equals != std::string::npos && equals > 0;
    const double factor = has_name ? base::parse<double>(std::string_view(item).substr(equals + 1)).value_or(-1) : -1;
    require(factor >= 0 && !std::isinf(factor),
            fmt::format("optim.lr_factors: {} is no name with a factor of at least 0", item),
            "write items as head.*=10, separated by commas");
    factors.emplace_back(item.substr(0, equals), factor);
  }
  return factors;
}

bool lets_gradients_stay(const ParallelConfig& config) { return set_for_travelling(config).empty(); }

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

void require_optimization(const Config& config) {
  OptimConfig copy = config.optim;
  Fields rows;
  describe(rows, copy);
  require_owned(rows.rows);
  check_optimization(config);
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

void require_consistent(const Config& config) {
  Config copy = config;
  require_owned(fields(copy));
  device_of(config.train);
  check_optimization(config);
  require_strategy(config);
  require_shard(config);
}

}  // namespace reigen::config
