// One struct = one TOML file = flags (`--section.key value`) = environment variables (`REIGEN_SECTION_KEY`).
//
// Later wins: default < file (`--config f`) < environment < flags. One table of fields drives reading, checking,
// --help, --print-config and the comparison between ranks. Values are checked when they are read, so that the message
// can say where they come from. Unknown keys are refused with the nearest known one.
//
// Thread rule: values; the functions keep no state.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "reigen/comm/communicator.h"

namespace reigen::train {

struct RunConfig {
  std::string dir = {};             // where the files go; empty: runs/<recipe>-<date-time>
  std::string resume = {};          // empty or "false": start anew; "true": newest checkpoint of run.dir; else a path
  bool save_initial = false;        // write initial.safetensors
  std::string trace = {};           // "10:15": a timeline of these steps of all ranks in trace.json; empty: none
  std::string ranks = "processes";  // processes (of a launcher) or threads (of this process)
  std::string stop_signals = "int,term,hup,usr1,usr2,xcpu";  // a wish to stop: save, end with 75; or none
  std::string stop_after = {};  // a time since the start, as 3h50m: stop as if a signal had come; empty: never
};

struct TrainConfig {
  std::int64_t epochs = 1;
  std::int64_t max_steps = 0;                     // 0: no limit
  std::optional<std::int64_t> global_batch = {};  // samples a step over all ranks; not set: the recipe's own per rank
  std::int64_t micro_batch = 0;                   // samples of a forward and backward on a rank; 0: its share of a step
  std::int64_t seed = 0;
  std::int64_t threads = 0;  // per rank; 0: what the launcher gives (OMP_NUM_THREADS)
  std::string precision = "fp32";
  std::optional<double> loss_scale = {};   // fp16: the first; it follows overflows
  double clip_norm = 0;                    // largest norm of all gradients together; 0: no clipping
  double clip_value = 0;                   // largest magnitude of a gradient's element; 0: no clipping
  std::int64_t activation_checkpoint = 0;  // every so many-th unit computes its activations again in backward; 0: none
  std::string activation_keep = "none";    // products: those units keep outputs of products, convolutions, attention
  std::string not_finite = "stop";         // a step that gives no number: stop, skip (it), rollback (to a checkpoint)
  std::int64_t compare_every = 1000;       // steps between two comparisons of replicas by hash; 0: none
  std::int64_t verify = 0;                 // steps that are made alone and in parallel and compared before training
  std::int64_t log_every = 50;             // steps between two plain lines
};

// What is not set is the optimizer's own default (reigen/optim/<name>.h). What an optimizer or a schedule does not have
// is refused.
struct OptimConfig {
  std::string name = "adamw";  // adam, adamw, sgd, adagrad, rmsprop, lion, lars, lamb
  std::optional<double> lr = {};
  std::optional<double> weight_decay = {};
  std::optional<double> momentum = {};                   // sgd, rmsprop, lars
  std::optional<double> dampening = {};                  // sgd with momentum
  bool nesterov = false;                                 // sgd
  std::optional<double> beta1 = {};                      // adam, adamw, lion, lamb
  std::optional<double> beta2 = {};                      // the same
  std::optional<double> eps = {};                        // adam, adamw, adagrad, rmsprop, lamb
  bool amsgrad = false;                                  // adam, adamw
  std::optional<double> alpha = {};                      // rmsprop
  bool centered = false;                                 // rmsprop
  std::optional<double> lr_decay = {};                   // adagrad
  std::optional<double> initial_accumulator_value = {};  // adagrad
  std::optional<double> trust_coefficient = {};          // lars
  bool bf16_states = false;                              // adam, adamw, lion, sgd with momentum

  // Patterns of parameter names, as optim::ParameterGroup, separated by commas.
  std::string no_decay = {};
  std::string no_adapt = {};    // lars, lamb; empty: those of no_decay; "none": all adapt
  std::string lr_factors = {};  // "head.*=10, body.*=0.1"

  std::string schedule = "constant";
  std::int64_t warmup_steps = 0;                 // the learning rate grows linearly over the first steps
  std::optional<double> min_lr_factor = {};      // cosine, polynomial, warmup_stable_decay
  std::optional<std::int64_t> step_size = {};    // step
  std::optional<double> gamma = {};              // step, multi_step
  std::string milestones = {};                   // multi_step: "1000, 2000"
  std::optional<double> power = {};              // polynomial
  std::optional<std::int64_t> decay_steps = {};  // warmup_stable_decay
  std::optional<double> pct_start = {};          // one_cycle
  std::optional<double> div_factor = {};         // one_cycle
  std::optional<double> final_div_factor = {};   // one_cycle

  std::string lr_scaling = "none";  // none, linear, sqrt: lr is for base_batch samples a step
  std::optional<std::int64_t> base_batch = {};
  double ema_decay = 0;  // 0: no average of the weights
};

struct DataConfig {
  bool takes_path = true;  // whether there is an option data.path
  std::string path = {};   // empty: the recipe's own data, which need no file
  std::int64_t workers = 1;
  std::string dump_order = {};  // file for the sample indices of every step
  std::int64_t limit = 0;       // 0: all training samples
  bool may_differ = false;      // a resume takes other data than the run began with, and says what differs
};

// An option of a recipe's own, such as a size of its model. Its value, the default, decides what it takes: a whole
// number, a number (0.5), text ("mean") or a switch (false).
struct ModelOption {
  std::string key = {};  // "dim" is the option model.dim; "loss.rate" the option loss.rate, of a section of your own
  std::variant<std::int64_t, double, std::string, bool> value = std::int64_t{0};
  std::string meaning = {};               // for --help
  std::optional<double> low = {};         // smallest value; not set: 1 for whole numbers, none for others
  std::optional<double> high = {};        // largest value; not set: 1,000,000 for whole numbers, none for others
  std::vector<std::string> choices = {};  // of text; empty: any
};

struct ModelConfig {
  std::vector<ModelOption> options = {};

  // What was chosen for the option with this key. Throw InternalError for a key that is not there, or is of another
  // kind.
  std::int64_t operator[](const std::string& key) const;
  double real(const std::string& key) const;
  const std::string& text(const std::string& key) const;
  bool flag(const std::string& key) const;
};

// What is not set is the strategy's own default (reigen/parallel/strategies.h). What a strategy does not have is
// refused.
struct ParallelConfig {
  double bucket_mb = 25.0;  // 0: every parameter alone
  bool overlap = true;
  std::string buffers = "broadcast";              // broadcast, average, own
  std::string shard = "auto";                     // auto, none, optimizer, gradients, parameters
  std::int64_t replicas = 1;                      // with a shard
  bool reshard_after_forward = true;              // shard parameters
  std::int64_t unit_size = 0;                     // elements of the smallest unit; 0: each is one
  std::int64_t reshard_to = 0;                    // ranks that keep a unit among them behind its forward; 0: none
  std::string gather_type = "own";                // own, bf16, fp16: of weights on their way, shard parameters
  std::string reduce_type = "own";                // the same of gradients, shard gradients and parameters
  std::string offload = {};                       // directory for states and divided weights; empty: memory
  std::string strategy = "plain";                 // see strategies.h; bf16 and fp16 are compressed()
  std::optional<std::int64_t> matrix_rank = {};   // power_sgd
  std::optional<std::int64_t> start_step = {};    // power_sgd, one_bit, local_sgd
  std::optional<double> share = {};               // top_k
  std::optional<std::int64_t> every = {};         // local_sgd, hierarchical_sgd, diloco
  std::optional<std::int64_t> group_size = {};    // hierarchical_sgd
  std::optional<std::int64_t> global_every = {};  // hierarchical_sgd
  std::optional<double> outer_lr = {};            // diloco
  std::optional<double> outer_momentum = {};      // diloco
  std::string topology = "ring";                  // gossip: ring, exponential
  std::optional<std::int64_t> staleness = {};     // async_gossip, stale_synchronous
};

struct CommConfig {
  std::string backend = "auto";
  std::string algorithms = {};  // as GroupOptions::algorithms
  std::string network = "tcp";  // as GroupOptions::network
  std::string machine_id = {};  // of this rank alone; as GroupOptions::machine_id
  std::int64_t machines = 0;    // this machine plays so many; 0: machine_id and what ranks can open decide
  double join_timeout = 60;     // seconds; as GroupOptions
  double heartbeat_timeout = 10;
  double report_after = 30;
  double timeout = 0;  // 0: REIGEN_TIMEOUT, else GroupOptions' value
};

struct CheckpointConfig {
  std::int64_t every_steps = 0;  // 0: only at the end and when stopped
  std::int64_t keep = 2;
  bool asynchronous = false;  // written by a thread, from a copy of the state
};

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

// One row of the table; `value` points into the Config it was made from.
struct Field {
  std::string section;
  std::string key;
  std::variant<bool*, std::int64_t*, std::optional<std::int64_t>*, double*, std::optional<double>*, std::string*> value;
  std::string meaning;
  double low = 0;          // numbers: smallest value
  double high = 0;         // numbers: largest value
  bool above_low = false;  // the smallest value itself is not allowed
  std::vector<std::string> choices = {};
  bool may_differ = false;   // between ranks
  bool own_section = false;  // of a recipe's own: its variable is REIGEN_MODEL_SECTION_KEY

  std::string name() const { return section + "." + key; }
};

std::vector<Field> fields(Config& config);

// The value as text: what --help and comparisons show ("not set" for an optional without value).
std::string value_text(const Field& field);

// What a command line asked for.
struct CommandLine {
  Config config;
  bool help = false;
  bool print_config = false;
  std::optional<int> ranks = {};  // -n N
};

using Environment = std::vector<std::pair<std::string, std::string>>;

// The process's own variables.
Environment process_environment();

// Reads `arguments` (without program and recipe name) over `environment` over the file of --config over `defaults`, of
// which learning rate and decay are for the default's optimizer alone: another one has its own.
// Errors: InvalidArgument 2 for unknown flags and flags without value, 78 for unknown keys in files and variables,
// wrong types and values out of range, IoError 66 for a missing file. The text names flag, variable or
// file:line:column.
CommandLine read_command_line(const Config& defaults, const std::vector<std::string>& arguments,
                              const Environment& environment);

// Valid TOML with one line a key; reading it gives an equal Config.
std::string to_toml(const Config& config);

// The options part of --help.
std::string help_text(const Config& defaults);

// Equal exactly for equal configurations.
std::uint64_t hash_of(const Config& config);

// Throws InvalidArgument (78) on every rank when ranks were started with different configurations; the text names the
// first differing key with the values of rank 0 and of the first rank that differs. One all_gather of 8 bytes when they
// agree.
void require_same(const Config& config, const Communicator& world);

}  // namespace reigen::train
