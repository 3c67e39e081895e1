// All options of a training in one struct. A user sets them in a TOML file, by flags (`--section.key value`) and by
// environment variables (`REIGEN_SECTION_KEY`). This header does not need LibTorch.
//
// Each struct has a describe() that lists its members once. Reading, checking, --help, --print-config and the
// comparison between ranks (command_line.h) all use this list.
// Thread rule: these types are values; every thread may have its own copy.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "reigen/base/fields.h"
#include "reigen/comm/options.h"
#include "reigen/config/checkpoint.h"
#include "reigen/config/data.h"
#include "reigen/config/mesh.h"
#include "reigen/config/optimizers.h"
#include "reigen/config/run.h"
#include "reigen/config/strategies.h"
#include "reigen/config/validation.h"

namespace reigen::config {

struct TrainConfig {
  std::int64_t epochs = 1;
  std::int64_t max_steps = 0;
  std::string max_time = {};
  std::int64_t overfit = 0;
  std::optional<std::int64_t> global_batch = {};
  std::int64_t micro_batch = 0;
  std::int64_t seed = 0;
  std::int64_t threads = 0;
  std::string device = "cpu";
  std::string precision = "fp32";
  std::string weights = "own";
  bool tf32 = false;
  bool deterministic = false;
  std::string graph = "none";
  std::optional<double> loss_scale = {};
  bool takes_label_smoothing = false;  // if false, there is no option train.label_smoothing
  double label_smoothing = 0;
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
  fields.add("max_time", o.max_time,
             "end the training after this time of this start: 90 s, 45 min, 2 h; empty: no limit");
  fields.add(
      "overfit", o.overfit, at_least(0).up_to(1e6),
      "train on this many first batches only, in the same order each epoch, to see whether they are learnt; 0: all");
  fields.add("global_batch", o.global_batch, at_least(1).up_to(1e9),
             "samples in a step of all ranks together; not set: the recipe's number for each rank");
  fields.add("micro_batch", o.micro_batch, at_least(0).up_to(1e9),
             "largest number of samples in one forward of a rank; its gradients are added up; 0: no limit");
  fields.add("seed", o.seed, at_least(0), "decides the initial weights, the order of the samples, and dropout");
  fields.add("threads", o.threads, at_least(0).up_to(1024),
             "threads that compute for a rank; 0: OMP_NUM_THREADS, else a share of the cores");
  fields.add("device", o.device,
             "where ranks compute: cpu; cuda (the GPU with the rank's number on its machine); cuda:1; auto: cuda if a "
             "GPU can be used, else cpu");
  fields.add("precision", o.precision, {"fp32", "fp64", "bf16", "fp16"},
             "bf16, fp16: products and convolutions in 16 bits, weights in fp32; fp32, fp64: everything in this type");
  fields
      .add("weights", o.weights, {"own", "bf16"},
           "bf16: the model's matrices and tables are bf16, and the optimizer keeps fp32 copies of them")
      .only_for({"bf16"}, o.precision, "train.precision", "own");
  fields.add("tf32", o.tf32,
             "on a GPU: fp32 products and convolutions round their inputs to TF32 (10 bits of mantissa)");
  fields.add("deterministic", o.deterministic,
             "each run on a GPU gives the same bits; an operator that cannot do so ends the run");
  fields.add("graph", o.graph, {"none", "step"},
             "step: one CUDA graph runs forward and backward, for one rank on a GPU; less work for the host");
  fields.add("loss_scale", o.loss_scale, at_least(1).up_to(16777216), "first factor of the loss; overflows change it")
      .only_for({"fp16"}, o.precision, "train.precision");
  if (o.takes_label_smoothing) {
    fields.add("label_smoothing", o.label_smoothing, at_least(0).below(1),
               "share of each target that is spread over all classes, in the loss of training; validation tells the "
               "plain loss");
  }
  fields.add("clip_norm", o.clip_norm, at_least(0), "largest norm of all gradients together; 0: no limit");
  fields.add("clip_value", o.clip_value, at_least(0), "largest magnitude of a gradient's element; 0: no limit");
  fields.add("activation_checkpoint", o.activation_checkpoint, at_least(0).up_to(1000),
             "every Nth unit of the model computes its activations again in backward; 0: no unit");
  fields.add("activation_keep", o.activation_keep, {"none", "products"},
             "products: these units keep the outputs of matrix products, convolutions and attention");
  fields.add("not_finite", o.not_finite, {"stop", "skip", "rollback"},
             "after a loss or gradient that is NaN or infinite: stop; skip the step; or roll back to the newest "
             "checkpoint and leave the batch out");
  fields.add("compare_every", o.compare_every, at_least(0),
             "steps between two comparisons of the ranks' weights, by hash; 0: never");
  fields.add("verify", o.verify, at_least(0).up_to(1000),
             "first steps that are also made on one rank. With a mesh each rank trains the whole model too, and units, "
             "gradients and weights must agree; else gradients and weights, in fp32 without strategy and shards");
  fields.add("log_every", o.log_every, at_least(1).up_to(1e9), "steps between two lines, if the output is no terminal");
}

struct OptimConfig {
  optim::AnyOptimizer rule = {};            // optim.name and the options of that optimizer
  std::optional<double> lr = {};            // if not set, the optimizer's default
  std::optional<double> weight_decay = {};  // if not set, the optimizer's default
  std::string no_decay = {};
  std::string no_adapt = {};
  std::string lr_factors = {};
  optim::AnySchedule schedule = {};  // optim.schedule and the options of that schedule
  std::int64_t warmup_steps = 0;
  std::string warmup = {};                 // the same with a unit: "5 epochs"
  std::optional<double> warmup_from = {};  // if not set, the first step has lr / length of the warm-up
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
  fields.add("weight_decay", o.weight_decay, at_least(0), "weight decay; not set: the optimizer's own");
  o.rule.add_options(fields);
  fields.add("no_decay", o.no_decay,
             "patterns (*, ?) of parameters without weight decay, separated by commas; @vectors: biases and norms");
  fields.add("no_adapt", o.no_adapt, "patterns of parameters whose rate follows no norm; empty: those of no_decay")
      .only_for({optim::LARSOptions::kName, optim::LAMBOptions::kName}, o.rule.name, "optim.name");
  fields.add("lr_factors", o.lr_factors, "factors of the rate, as head.*=10,embed*=0.1; the first that matches counts");
  o.schedule.add_name(fields, "schedule", "the learning rate's course after the warm-up");
  fields.add("warmup_steps", o.warmup_steps, at_least(0), "steps in which the learning rate grows from 0 to optim.lr");
  fields.add("warmup", o.warmup, "the same with a unit: 5 epochs, 500 steps; empty: optim.warmup_steps");
  fields.add(
      "warmup_from", o.warmup_from, at_least(0),
      "learning rate of the first step of the warm-up, which optim.lr_scaling does not change; a larger one than "
      "that at its end counts as that one; not set: that at its end / its steps");
  o.schedule.add_options(fields);
  fields.add("lr_scaling", o.lr_scaling, {"none", "linear", "sqrt"}, "how lr grows with global batch / base_batch");
  fields.add("base_batch", o.base_batch, at_least(1).up_to(1e9), "the batch for which optim.lr was found")
      .only_for({"linear", "sqrt"}, o.lr_scaling, "optim.lr_scaling")
      .required = true;
  fields.add("ema_decay", o.ema_decay, at_least(0).below(1),
             "validate and save an average of the weights that keeps this share in each step; 0: the weights");
}

// An option that a recipe adds, such as a size of its model. `value` is the default; its type is the option's type: a
// whole number, a real number (0.5), text ("mean") or a switch (false).
struct ModelOption {
  std::string key =
      {};  // "dim" is the option model.dim; "data.noise" is in the section data, "loss.rate" in one of your own
  std::variant<std::int64_t, double, std::string, bool> value = std::int64_t{0};
  std::string meaning = {};               // text for --help
  std::optional<double> low = {};         // smallest value; if not set: 1 for a whole number, no limit for a real one
  std::optional<double> high = {};        // largest value; if not set: 10^6 for a whole number, no limit for a real one
  std::vector<std::string> choices = {};  // values that a text may have; if empty, any text
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
  const std::vector<std::string> kFromGradients = {"gradients", "parameters"};
  const std::vector<std::string> kDivided = {"optimizer", "gradients", "parameters"};
  fields.section = "parallel";
  fields.add("bucket_mb", o.bucket_mb, at_least(0).up_to(1e6), "MiB of gradients in one call; 0: a call a parameter");
  fields.add("overlap", o.overlap, "true: gradients are sent during backward; false: after it");
  fields.add("buffers", o.buffers, {"broadcast", "average", "own"},
             "the batch statistics for the next step: those of rank 0, the mean of all ranks, each rank's own");
  fields.add("shard", o.shard, {"auto", "none", "optimizer", "gradients", "parameters"},
             "what ranks divide between them: optimizer states (ZeRO 1), gradients too (2), parameters too (3); auto: "
             "gradients if ranks share memory and strategy, bucket_mb and overlap are as by default, else none");
  fields.add("replicas", o.replicas, at_least(1).up_to(1e6), "groups of ranks, each of which divides a whole model")
      .only_for(kDivided, o.shard, "parallel.shard", "1");
  fields
      .add("reshard_after_forward", o.reshard_after_forward,
           "over a network: free a unit's gathered weights after its forward and gather them again in backward")
      .only_for({"parameters"}, o.shard, "parallel.shard", "true");
  fields
      .add("unit_size", o.unit_size, at_least(0),
           "over a network: smallest number of weights of a unit; a smaller one is joined to the unit around it")
      .only_for(kFromGradients, o.shard, "parallel.shard", "0");
  fields
      .add("reshard_to", o.reshard_to, at_least(0).up_to(1e6),
           "after its forward, groups of N ranks keep a unit's weights, and backward gathers from them; 0: all ranks")
      .only_for({"parameters"}, o.shard, "parallel.shard", "0");
  fields.add("gather_type", o.gather_type, {"own", "bf16", "fp16"}, "over a network: the type of sent weights")
      .only_for({"parameters"}, o.shard, "parallel.shard", "own");
  fields.add("reduce_type", o.reduce_type, {"own", "bf16", "fp16"}, "over a network: the type of sent gradients")
      .only_for(kFromGradients, o.shard, "parallel.shard", "own");
  fields.add(
      "offload", o.offload,
      "directory on a disk for optimizer states and divided weights; on a GPU: pinned, states in the host's memory; "
      "empty: none");
  o.strategy.add_name(fields, "strategy", "how the ranks combine their gradients or weights");
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
             "this machine acts as N machines with equal numbers of ranks; 0: as comm.machine_id says");
}

struct LogConfig {
  bool tensorboard = true;
  bool csv = false;
  std::string histograms = {};
  std::int64_t images = 0;
};
inline void describe(Fields& fields, LogConfig& o) {
  fields.section = "log";
  fields.add("tensorboard", o.tensorboard, "write curves, options and results for TensorBoard into run.dir");
  fields.add("csv", o.csv, "write the figures of metrics.jsonl into metrics.csv too");
  fields.add(
      "histograms", o.histograms,
      "for TensorBoard, how often to write the distributions of all weights and gradients: 1 epoch, 500 (steps), "
      "30 min; empty: never");
  fields.add("images", o.images, at_least(0).up_to(10000),
             "for TensorBoard, how many pictures of the first training batch to write; 0: none");
}

struct Config {
  RunConfig run = {};
  TrainConfig train = {};
  OptimConfig optim = {};
  DataConfig data = {};
  ModelConfig model = {};
  ParallelConfig parallel = {};
  MeshConfig mesh = {};
  CommConfig comm = {};
  CheckpointConfig checkpoint = {};
  ValidateConfig validate = {};
  StopConfig stop = {};
  LogConfig log = {};
};

// Returns the rows (descriptions of options, fields.h) of all sections. They point into `config`.
std::vector<Field> fields(Config& config);

}  // namespace reigen::config
