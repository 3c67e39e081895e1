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
  std::string ranks = "processes";  // processes (of a launcher) or threads (of this process)
};

struct TrainConfig {
  std::int64_t epochs = 1;
  std::int64_t max_steps = 0;                     // 0: no limit
  std::optional<std::int64_t> global_batch = {};  // samples a step over all ranks; not set: the recipe's own per rank
  std::int64_t seed = 0;
  std::int64_t threads = 0;  // per rank; 0: what the launcher gives (OMP_NUM_THREADS)
  std::string precision = "fp32";
  std::int64_t log_every = 50;  // steps between two plain lines
};

struct OptimConfig {
  std::string name = "adamw";
  double lr = 1e-3;
  double weight_decay = 0.01;
  double momentum = 0.0;          // sgd only
  std::int64_t warmup_steps = 0;  // the learning rate grows linearly over the first steps
};

struct DataConfig {
  std::string path = {};  // empty: the recipe's embedded data
  std::int64_t workers = 1;
  std::string dump_order = {};  // file for the sample indices of every step
  std::int64_t limit = 0;       // 0: all training samples
};

struct ParallelConfig {
  double bucket_mb = 25.0;  // 0: every parameter alone
  bool overlap = true;
};

struct CommConfig {
  std::string backend = "auto";
  std::string algorithms = {};  // as GroupOptions::algorithms
  std::string machine_id = {};  // of this rank alone; as GroupOptions::machine_id
};

struct CheckpointConfig {
  std::int64_t every_steps = 0;  // 0: only at the end and when stopped
  std::int64_t keep = 2;
};

struct Config {
  RunConfig run;
  TrainConfig train;
  OptimConfig optim;
  DataConfig data;
  ParallelConfig parallel;
  CommConfig comm;
  CheckpointConfig checkpoint;
};

// One row of the table; `value` points into the Config it was made from.
struct Field {
  std::string section;
  std::string key;
  std::variant<bool*, std::int64_t*, std::optional<std::int64_t>*, double*, std::string*> value;
  std::string meaning;
  double low = 0;          // numbers: smallest value
  double high = 0;         // numbers: largest value
  bool above_low = false;  // the smallest value itself is not allowed
  std::vector<std::string> choices = {};
  bool may_differ = false;  // between ranks

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

// Reads `arguments` (without program and recipe name) over `environment` over the file of --config over `defaults`.
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
void require_same(const Config& config, Communicator& world);

}  // namespace reigen::train
