// All options of a training in one struct. A user sets them in a TOML file, by flags (`--section.key value`) and by
// environment variables (`REIGEN_SECTION_KEY`). This header does not need LibTorch.
//
// Each struct has a describe() that lists its members once. Reading, checking, --help, --print-config and the
// comparison between ranks (command_line.h) all use these rows.
// Thread rule: values, freely copied between threads.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "reigen/base/fields.h"
#include "reigen/comm/options.h"
#include "reigen/config/optimizers.h"
#include "reigen/config/strategies.h"

namespace reigen::config {

struct RunConfig {
  std::string dir = {};
  std::string resume = {};
  bool save_initial = false;
  std::string trace = {};
  std::string ranks = "processes";
  std::string stop_signals = "int,term,hup,usr1,usr2,xcpu";
  std::string stop_after = {};
};
inline void describe(Fields& fields, RunConfig& o) {
  fields.section = "run";
  fields.add("dir", o.dir, "directory of the run's files; empty: runs/<recipe>-<date-time>");
  fields.add("resume", o.resume,
             "true: go on from the newest checkpoint of run.dir; or the path of a run or checkpoint");
  fields.add("save_initial", o.save_initial, "write the initial weights to initial.safetensors");
  fields.add("trace", o.trace,
             "steps (10:15) of which all ranks' timeline is written to trace.json, for ui.perfetto.dev; empty: none");
  fields.add("ranks", o.ranks, {"processes", "threads"},
             "what a rank is: a process of the launcher, or (with -n N) a thread of this one");
  fields.add("stop_signals", o.stop_signals,
             "signals that save a checkpoint and end the run with 75; the others end it as ever; none: no signal");
  fields.add("stop_after", o.stop_after,
             "stop so long after the start, as these signals do: 90 (seconds), 45m, 3h50m; empty: never");
}

struct TrainConfig {
  std::int64_t epochs = 1;
  std::int64_t max_steps = 0;
  std::optional<std::int64_t> global_batch = {};
  std::int64_t micro_batch = 0;
  std::int64_t seed = 0;
  std::int64_t threads = 0;
  std::string device = "cpu";
  std::string precision = "fp32";
  std::optional<double> loss_scale = {};
  double clip_norm = 0;
  double clip_value = 0;
  std::int64_t activation_checkpoint = 0;
  std::string activation_keep = "none";
  std::string not_finite = "stop";
  std::int64_t compare_every = 1000;
  std::int64_t verify = 0;
  std::int64_t log_every = 50;
};
inline void describe(Fields& fields, TrainConfig& o) {
  fields.section = "train";
  fields.add("epochs", o.epochs, at_least(1).up_to(1e9), "passes over the training samples");
  fields.add("max_steps", o.max_steps, at_least(0), "stop after this many steps; 0: no limit");
  fields.add("global_batch", o.global_batch, at_least(1).up_to(1e9),
             "samples a step over all ranks, shared out with any remainder; not set: the recipe's number a rank");
  fields.add(
      "micro_batch", o.micro_batch, at_least(0).up_to(1e9),
      "samples a rank computes at a time at most, gradients are added up over a step; 0: its share of the global "
      "batch at once");
  fields.add("seed", o.seed, at_least(0), "initial weights, sample order and random layers follow from it");
  fields.add("threads", o.threads, at_least(0).up_to(1024),
             "threads a rank computes with; 0: OMP_NUM_THREADS, else its share of the machine");
  fields.add("device", o.device,
             "where a rank computes: cpu; cuda: a GPU, chosen by the rank's number on its machine; cuda:1: this GPU; "
             "auto: a GPU where one can be used, else the CPU");
  fields.add("precision", o.precision, {"fp32", "fp64", "bf16", "fp16"},
             "fp32, fp64: of weights and computation; bf16, fp16: products and convolutions in 16 bits, with fp32 "
             "weights (fp16 with a loss scale that follows overflows)");
  fields.add("loss_scale", o.loss_scale, at_least(1).up_to(16777216),
             "fp16: what the loss is multiplied by at first, it then follows overflows");
  fields.add("clip_norm", o.clip_norm, at_least(0),
             "scale the gradients down to this norm of all together; 0: leave them");
  fields.add("clip_value", o.clip_value, at_least(0),
             "clamp every element of the gradients to this magnitude; 0: leave them");
  fields.add("activation_checkpoint", o.activation_checkpoint, at_least(0).up_to(1000),
             "every so many-th unit of the model keeps no activations and computes them again in backward; 0: all keep "
             "them");
  fields.add("activation_keep", o.activation_keep, {"none", "products"},
             "what those units keep nevertheless: none, or the outputs of matrix products, convolutions and attention "
             "(products), which cost most to compute again");
  fields.add("not_finite", o.not_finite, {"stop", "skip", "rollback"},
             "when a loss or a gradient is no number: stop; skip the step on all ranks; rollback to the newest "
             "checkpoint and leave that batch out");
  fields.add("compare_every", o.compare_every, at_least(0),
             "steps between two comparisons, by hash, of what ranks must hold alike; 0: never");
  fields.add("verify", o.verify, at_least(0).up_to(1000),
             "steps to make with one global batch alone and in parallel before training, which must agree: without "
             "strategy and shards, in 16 bits with fp32");
  fields.add("log_every", o.log_every, at_least(1).up_to(1e9),
             "steps between two lines when the output is no terminal");
}

struct OptimConfig {
  optim::AnyOptimizer rule = {};            // optim.name and the options of that optimizer
  std::optional<double> lr = {};            // not set: the optimizer's default
  std::optional<double> weight_decay = {};  // not set: the optimizer's default
  std::string no_decay = {};
  std::string no_adapt = {};
  std::string lr_factors = {};
  optim::AnySchedule schedule = {};  // optim.schedule and the options of that schedule
  std::int64_t warmup_steps = 0;
  std::string lr_scaling = "none";
  std::optional<std::int64_t> base_batch = {};
  double ema_decay = 0;
};
inline void describe(Fields& fields, OptimConfig& o) {
  fields.section = "optim";
  // A learning rate that was set in the optimizer's own options counts as optim.lr, a weight decay as
  // optim.weight_decay.
  o.rule.visit([&]<class Rule>(const Rule& rule) {
    if (!o.lr && rule.lr != Rule().lr) o.lr = rule.lr;
    if (!o.weight_decay && rule.weight_decay != Rule().weight_decay) o.weight_decay = rule.weight_decay;
  });
  o.rule.add_name(fields, "name", "the optimizer");
  fields.add("lr", o.lr, above(0), "learning rate; not set: the optimizer's own");
  fields.add("weight_decay", o.weight_decay, at_least(0),
             "decay of the weights (decoupled for adamw, lion and lamb); not set: the optimizer's own");
  o.rule.add_options(fields);
  fields.add("no_decay", o.no_decay,
             "names of parameters without weight decay, with * and ?, separated by commas; @vectors: all with at most "
             "one dimension, which biases and norms are");
  fields
      .add("no_adapt", o.no_adapt,
           "names of parameters whose rate follows no norm; empty: those of optim.no_decay; none: all follow")
      .only_for({optim::LARSOptions::kName, optim::LAMBOptions::kName}, o.rule.name, "optim.name");
  fields.add("lr_factors", o.lr_factors,
             "factors of the learning rate by name, e.g. head.*=10,embed*=0.1; the first that matches counts");
  o.schedule.add_name(fields, "schedule", "how the learning rate goes on after the warm-up");
  fields.add("warmup_steps", o.warmup_steps, at_least(0),
             "steps over which the learning rate grows linearly to optim.lr");
  o.schedule.add_options(fields);
  fields.add("lr_scaling", o.lr_scaling, {"none", "linear", "sqrt"},
             "how optim.lr grows with global batch / optim.base_batch");
  fields.add("base_batch", o.base_batch, at_least(1).up_to(1e9), "samples a step for which optim.lr is meant");
  fields.add("ema_decay", o.ema_decay, at_least(0).below(1),
             "validate with, and save, an average of the weights of which a step keeps this share; 0: none");
}

struct DataConfig {
  bool takes_path = true;  // false: there is no option data.path
  std::string path = {};
  std::int64_t workers = 1;
  std::string dump_order = {};
  std::int64_t limit = 0;
  bool may_differ = false;
};
inline void describe(Fields& fields, DataConfig& o) {
  fields.section = "data";
  if (o.takes_path)
    fields.add("path", o.path, "folder or file of the data, in the recipe's forms; empty: data of the program's own");
  fields.add("workers", o.workers, at_least(0).up_to(64),
             "threads that prepare batches ahead of their use; 0: when they are asked for");
  fields.add("dump_order", o.dump_order,
             "file for the sample indices of every step, a line a step, in global batch order");
  fields.add("limit", o.limit, at_least(0), "use only the first so many training samples; 0: all");
  fields.add("may_differ", o.may_differ,
             "true: a run goes on with other data than it began with (texts, classes, number of samples); what differs "
             "is said");
}

// An option that a recipe adds, such as a size of its model. `value` is the default; its type is the option's type: a
// whole number, a real number (0.5), text ("mean") or a switch (false).
struct ModelOption {
  std::string key = {};  // "dim" is the option model.dim; "loss.rate" is the option loss.rate in a section of your own
  std::variant<std::int64_t, double, std::string, bool> value = std::int64_t{0};
  std::string meaning = {};               // text for --help
  std::optional<double> low = {};         // smallest value; not set: 1 for whole numbers, no limit for real ones
  std::optional<double> high = {};        // largest value; not set: 1,000,000 for whole numbers, no limit for real ones
  std::vector<std::string> choices = {};  // values that a text may have; empty: any text
};

struct ModelConfig {
  std::vector<ModelOption> options = {};

  // The value of the option with this key. These functions throw InternalError if there is no such key or the option
  // has another type.
  std::int64_t operator[](const std::string& key) const;
  double real(const std::string& key) const;
  const std::string& text(const std::string& key) const;
  bool flag(const std::string& key) const;
};
void describe(Fields& fields, ModelConfig& model);

struct ParallelConfig {
  double bucket_mb = 25.0;
  bool overlap = true;
  std::string buffers = "broadcast";
  std::string shard = "auto";
  std::int64_t replicas = 1;
  bool reshard_after_forward = true;
  std::int64_t unit_size = 0;
  std::int64_t reshard_to = 0;
  std::string gather_type = "own";
  std::string reduce_type = "own";
  std::string offload = {};
  parallel::AnyStrategy strategy = {};  // parallel.strategy and the options of that strategy
};
inline void describe(Fields& fields, ParallelConfig& o) {
  fields.section = "parallel";
  fields.add("bucket_mb", o.bucket_mb, at_least(0).up_to(1e6),
             "MiB of gradients that travel together; 0: every parameter alone");
  fields.add("overlap", o.overlap, "gradients travel while backward runs; false: after it");
  fields.add("buffers", o.buffers, {"broadcast", "average", "own"},
             "whose batch statistics all ranks go on with: rank 0's, the mean, each its own");
  fields.add(
      "shard", o.shard, {"auto", "none", "optimizer", "gradients", "parameters"},
      "what ranks divide: nothing; states of the optimizer, of which each steps its share (ZeRO 1); gradients too "
      "(2); weights too (3); auto: gradients, where ranks share memory and neither strategy, bucket_mb nor "
      "overlap is set");
  fields.add("replicas", o.replicas, at_least(1).up_to(1e6),
             "with a shard: groups of ranks of which each holds all and divides it");
  fields.add("reshard_after_forward", o.reshard_after_forward,
             "with shard parameters over a network: a unit's weights leave behind its forward and come again for its "
             "backward; false: they stay until then");
  fields.add("unit_size", o.unit_size, at_least(0),
             "with shard parameters, and gradients over a network: parts of the model with fewer weights travel with "
             "what encloses them, or with what is of no part; 0: each by itself");
  fields.add("reshard_to", o.reshard_to, at_least(0).up_to(1e6),
             "in place of all ranks or none, groups of so many, as those of one machine, keep a unit among them: its "
             "weights come again from these; 0: from all");
  fields.add("gather_type", o.gather_type, {"own", "bf16", "fp16"},
             "with shard parameters over a network: the type in which weights travel to those who compute with them; "
             "own: as they are. Made for train.precision bf16");
  fields.add(
      "reduce_type", o.reduce_type, {"own", "bf16", "fp16"},
      "with shard parameters, and gradients over a network: the type in which gradients travel; own: as they are");
  fields.add("offload", o.offload,
             "a directory on a disk for what does not fit into memory: states of the optimizer, and weights that ranks "
             "divide; empty: memory");
  o.strategy.add_name(fields, "strategy", "how the ranks stay together");
  o.strategy.add_options(fields);
}

struct CommConfig {
  comm::GroupOptions group = {.timeout = {}};
  std::int64_t machines = 0;
};
inline void describe(Fields& fields, CommConfig& o) {
  fields.section = "comm";
  const std::size_t first = fields.rows.size();
  describe(fields, o.group);
  fields.rows[first].choices = {"auto", "shared_memory", "tcp", "mpi", "hierarchical"};
  fields.rows.back().range = at_least(0).up_to(1e9);
  fields.rows.back().meaning += "; 0: REIGEN_TIMEOUT, else 600";
  fields.add("machines", o.machines, at_least(0).up_to(1e6),
             "let this machine play so many, with equal shares of the ranks; 0: comm.machine_id decides");
}

struct CheckpointConfig {
  std::int64_t every_steps = 0;
  std::int64_t keep = 2;
  bool asynchronous = false;
};
inline void describe(Fields& fields, CheckpointConfig& o) {
  fields.section = "checkpoint";
  fields.add(
      "every_steps", o.every_steps, at_least(0),
      "steps between two checkpoints; 0: only at the end and when stopped. A killed run loses what was not saved");
  fields.add("keep", o.keep, at_least(1).up_to(1e6), "whole checkpoints to keep");
  fields.add("asynchronous", o.asynchronous,
             "copy the state and write it while training goes on; takes as much memory again as each rank gives");
}

struct Config {
  RunConfig run = {};
  TrainConfig train = {};
  OptimConfig optim = {};
  DataConfig data = {};
  ModelConfig model = {};
  ParallelConfig parallel = {};
  CommConfig comm = {};
  CheckpointConfig checkpoint = {};
};

// The rows of all sections. They point into `config`.
std::vector<Field> fields(Config& config);

}  // namespace reigen::config
