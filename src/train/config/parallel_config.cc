#include "train/config/parallel_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "reigen/base/error.h"
#include "train/config/config_text.h"
#include "train/config/option_owners.h"

namespace reigen::train {
namespace {

using Names = std::vector<std::string>;

const std::vector<OptionOwners> kOfStrategies{
    {"matrix_rank", {"power_sgd"}},
    {"start_step", {"power_sgd", "one_bit", "local_sgd"}},
    {"share", {"top_k"}},
    {"every", {"local_sgd", "hierarchical_sgd", "diloco"}},
    {"group_size", {"hierarchical_sgd"}},
    {"global_every", {"hierarchical_sgd"}},
    {"outer_lr", {"diloco"}},
    {"outer_momentum", {"diloco"}},
    {"topology", {"gossip"}},
    {"staleness", {"async_gossip", "stale_synchronous"}},
};

Field strategy_row(const char* key, decltype(Field::value) value, const std::string& meaning, double low = 0,
                   double high = 0, bool above_low = false) {
  return {"parallel", key, value, owners_text(kOfStrategies, key) + meaning, low, high, above_low};
}

Field strategy_choice(const char* key, std::string* value, const std::string& meaning, const Names& choices) {
  Field field = strategy_row(key, value, meaning);
  field.choices = choices;
  return field;
}

// "parallel.bucket_mb 5, parallel.overlap false": what lets_gradients_stay() minds.
std::string set_for_travelling(const ParallelConfig& config) {
  const ParallelConfig usual;
  Names set;
  if (config.strategy != usual.strategy) set.push_back("parallel.strategy " + config.strategy);
  if (config.bucket_mb != usual.bucket_mb) set.push_back(fmt::format("parallel.bucket_mb {}", config.bucket_mb));
  if (config.overlap != usual.overlap) set.push_back(fmt::format("parallel.overlap {}", config.overlap));
  return fmt::format("{}", fmt::join(set, ", "));
}

void require_shard(const char* option, const std::string& value, bool fits, const char* expected,
                   const std::string& shard) {
  if (value == "own" || fits) return;
  throw InvalidArgument(Report{.what = fmt::format("{} {} is for what ranks divide", option, value),
                               .got = "parallel.shard " + shard,
                               .expected = fmt::format("parallel.shard {}", expected),
                               .fix = "leave it out, or choose that"});
}

}  // namespace

void add_parallel(ParallelConfig& p, std::vector<Field>& table) {
  table.push_back(strategy_row("bucket_mb", &p.bucket_mb,
                               "MiB of gradients that travel together; 0: every parameter alone", 0, 1e6));
  table.push_back(strategy_row("overlap", &p.overlap, "gradients travel while backward runs; false: after it"));
  table.push_back(strategy_choice("buffers", &p.buffers,
                                  "whose batch statistics all ranks go on with: rank 0's, the mean, each its own",
                                  {"broadcast", "average", "own"}));
  table.push_back(strategy_choice("shard", &p.shard,
                                  "what ranks divide: nothing; states of the optimizer, of which each steps its share "
                                  "(ZeRO 1); gradients too (2); weights too (3); auto: gradients, where ranks share "
                                  "memory and neither strategy, bucket_mb nor overlap is set",
                                  {"auto", "none", "optimizer", "gradients", "parameters"}));
  table.push_back(strategy_row("replicas", &p.replicas,
                               "with a shard: groups of ranks of which each holds all and divides it", 1, 1e6));
  table.push_back(strategy_row("reshard_after_forward", &p.reshard_after_forward,
                               "with shard parameters over a network: a unit's weights leave behind its forward and "
                               "come again for its backward; false: they stay until then"));
  table.push_back(strategy_row("unit_size", &p.unit_size,
                               "with shard parameters, and gradients over a network: parts of the model with fewer "
                               "weights travel with what encloses them, or with what is of no part; 0: each by itself",
                               0, kLargest));
  table.push_back(
      strategy_row("reshard_to", &p.reshard_to,
                   "in place of all ranks or none, groups of so many, as those of one machine, keep a unit among them: "
                   "its weights come again from these; 0: from all",
                   0, 1e6));
  table.push_back(strategy_choice("gather_type", &p.gather_type,
                                  "with shard parameters over a network: the type in which weights travel to those "
                                  "who compute with them; own: as they are. Made for train.precision bf16",
                                  {"own", "bf16", "fp16"}));
  table.push_back(strategy_choice("reduce_type", &p.reduce_type,
                                  "with shard parameters, and gradients over a network: the type in which gradients "
                                  "travel; own: as they are",
                                  {"own", "bf16", "fp16"}));
  table.push_back(strategy_row("offload", &p.offload,
                               "a directory on a disk for what does not fit into memory: states of the optimizer, and "
                               "weights that ranks divide; empty: memory"));
  table.push_back(strategy_choice("strategy", &p.strategy, "how the ranks stay together", strategy_names()));
  table.push_back(strategy_row("matrix_rank", &p.matrix_rank, "rank of what a gradient is sent as", 1, 63));
  table.push_back(strategy_row("start_step", &p.start_step, "steps with plain averages at first", 0, kLargest));
  table.push_back(strategy_row("share", &p.share, "of a parameter's elements that travel", 0, 1, true));
  table.push_back(strategy_row("every", &p.every, "steps between two averages of the weights", 1, kLargest));
  table.push_back(strategy_row("group_size", &p.group_size, "ranks that average among themselves", 1, 1e9));
  table.push_back(
      strategy_row("global_every", &p.global_every, "averages of a group between two of all ranks", 1, kLargest));
  table.push_back(strategy_row("outer_lr", &p.outer_lr, "learning rate of the outer step", 0, 1e6, true));
  table.push_back(strategy_row("outer_momentum", &p.outer_momentum, "momentum of the outer step", 0, 0.9999999999));
  table.push_back(strategy_choice("topology", &p.topology, "with whom a rank averages", {"ring", "exponential"}));
  table.push_back(
      strategy_row("staleness", &p.staleness, "steps that a rank may be ahead of what it has heard", 0, 1000));
}

bool lets_gradients_stay(const ParallelConfig& config) { return set_for_travelling(config).empty(); }

void require_known_strategy(const Config& config) {
  const std::string& strategy = config.parallel.strategy;
  const bool keeps_errors = strategy == "power_sgd" || strategy == "top_k" || strategy == "one_bit";
  if (keeps_errors && config.train.precision == "fp16") {
    throw InvalidArgument(
        Report{.what = fmt::format("train.precision fp16 and parallel.strategy {} do not go together", strategy),
               .got = "gradients that carry a loss scale, of which some is kept for later steps with another scale",
               .fix = "choose train.precision bf16, or another strategy"});
  }
  const std::string& shard = config.parallel.shard;
  const bool shares_weights = shard == "optimizer" || shard == "gradients" || shard == "parameters";
  if (shares_weights && acts_on_weights(strategy)) {
    throw InvalidArgument(
        Report{.what = fmt::format("parallel.shard {} and parallel.strategy {} do not go together", shard, strategy),
               .got = "a strategy by which ranks' weights differ between steps, and weights that ranks have together",
               .fix = "leave one of the two out"});
  }
  if (shard == "gradients" && !lets_gradients_stay(config.parallel)) {
    throw InvalidArgument(
        Report{.what = "parallel.shard gradients and options of gradients that travel do not go together",
               .got = set_for_travelling(config.parallel),
               .expected = "none: each rank averages its share in its step",
               .fix = "leave it out, or choose parallel.shard optimizer or none"});
  }
  if (shard == "parameters" && strategy != "plain") {
    throw InvalidArgument(Report{.what = "parallel.shard parameters and a strategy do not go together",
                                 .got = fmt::format("parallel.strategy {}", strategy),
                                 .expected = "none: each rank averages its share",
                                 .fix = "leave it out, or choose parallel.shard optimizer or none"});
  }
  if (config.parallel.replicas > 1 && (shard == "none" || shard == "auto")) {
    throw InvalidArgument(Report{.what = "parallel.replicas is for ranks that divide what they hold",
                                 .got = fmt::format("parallel.shard {}", config.parallel.shard),
                                 .expected = "optimizer, gradients or parameters",
                                 .fix = "leave it out, or choose one of these"});
  }
  if (!config.parallel.reshard_after_forward && config.parallel.shard != "parameters") {
    throw InvalidArgument(Report{.what = "parallel.reshard_after_forward false is for parallel.shard parameters",
                                 .got = fmt::format("parallel.shard {}", config.parallel.shard),
                                 .fix = "leave it out, or choose parallel.shard parameters"});
  }
  const bool leaves = shard == "parameters" && config.parallel.reshard_after_forward;
  if (config.parallel.reshard_to > 0 && !leaves) {
    throw InvalidArgument(
        Report{.what = fmt::format("parallel.reshard_to {} is for weights that leave", config.parallel.reshard_to),
               .got = fmt::format("parallel.shard {}, parallel.reshard_after_forward {}", shard,
                                  config.parallel.reshard_after_forward),
               .expected = "parallel.shard parameters, parallel.reshard_after_forward true",
               .fix = "leave it out, or choose these"});
  }
  const bool divides_gradients = shard == "gradients" || shard == "parameters";
  require_shard("parallel.gather_type", config.parallel.gather_type, shard == "parameters", "parameters", shard);
  require_shard("parallel.reduce_type", config.parallel.reduce_type, divides_gradients, "gradients or parameters",
                shard);
  if (config.parallel.unit_size > 0) {
    require_shard("parallel.unit_size", fmt::format("{}", config.parallel.unit_size), divides_gradients,
                  "gradients or parameters", shard);
  }
  Config defaults;
  Config given = config;
  std::vector<Field> usual;
  std::vector<Field> table;
  add_parallel(defaults.parallel, usual);
  add_parallel(given.parallel, table);
  for (std::size_t i = 0; i < table.size(); ++i) {
    if (value_text(table[i]) == value_text(usual[i])) continue;
    require_owner(kOfStrategies, table[i], "parallel.strategy", config.parallel.strategy);
  }
}

}  // namespace reigen::train
