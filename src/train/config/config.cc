#include "reigen/train/config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/check.h"
#include "base/hash.h"
#include "reigen/base/error.h"
#include "train/config/config_text.h"

namespace reigen::train {

namespace {

// "dim": model.dim; "loss.rate": a section of the recipe's own.
std::pair<std::string, std::string> own_name(const ModelOption& option) {
  const auto dot = option.key.find('.');
  if (dot == std::string::npos) return {"model", option.key};
  return {option.key.substr(0, dot), option.key.substr(dot + 1)};
}

void add_own(ModelConfig& own, std::vector<Field>& table) {
  constexpr double kMostOfWhole = 1'000'000;
  const std::size_t first = table.size();
  for (ModelOption& option : own.options) {
    const auto [section, key] = own_name(option);
    Field field{.section = section, .key = key, .value = static_cast<bool*>(nullptr), .meaning = option.meaning};
    std::visit([&](auto& value) { field.value = &value; }, option.value);
    const bool whole = std::holds_alternative<std::int64_t>(option.value);
    field.low = option.low.value_or(whole ? 1 : -kHugeNumber);
    field.high = option.high.value_or(whole ? kMostOfWhole : kHugeNumber);
    field.choices = option.choices;
    field.own_section = section != "model";
    table.push_back(std::move(field));
  }
  // A section stands in a file once.
  std::stable_sort(table.begin() + static_cast<std::ptrdiff_t>(first), table.end(), [](const Field& a, const Field& b) {
    return std::pair(a.section != "model", a.section) < std::pair(b.section != "model", b.section);
  });
}

bool is_word(const std::string& text) {
  return !text.empty() && text.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") == std::string::npos;
}

template <class Value>
const Value& own_value(const ModelConfig& own, const std::string& key) {
  const auto found =
      std::find_if(own.options.begin(), own.options.end(), [&](const auto& option) { return option.key == key; });
  REIGEN_ASSERT(found != own.options.end(), "this recipe has no option {}", key);
  const Value* value = std::get_if<Value>(&found->value);
  REIGEN_ASSERT(value != nullptr, "the recipe's option {} is of another kind", key);
  return *value;
}

void add_run(RunConfig& run, std::vector<Field>& table) {
  table.push_back({"run", "dir", &run.dir, "directory of the run's files; empty: runs/<recipe>-<date-time>"});
  table.push_back({"run", "resume", &run.resume,
                   "true: go on from the newest checkpoint of run.dir; or the path of a run or checkpoint"});
  table.push_back({"run", "save_initial", &run.save_initial, "write the initial weights to initial.safetensors"});
  table.push_back({"run", "trace", &run.trace,
                   "steps (10:15) of which all ranks' timeline is written to trace.json, for ui.perfetto.dev; empty: "
                   "none"});
  table.push_back({.section = "run",
                   .key = "ranks",
                   .value = &run.ranks,
                   .meaning = "what a rank is: a process of the launcher, or (with -n N) a thread of this one",
                   .choices = {"processes", "threads"}});
  table.push_back(
      {"run", "stop_signals", &run.stop_signals,
       "signals that save a checkpoint and end the run with 75; the others end it as ever; none: no signal"});
  table.push_back({"run", "stop_after", &run.stop_after,
                   "stop so long after the start, as these signals do: 90 (seconds), 45m, 3h50m; empty: never"});
}

void add_train(TrainConfig& train, std::vector<Field>& table) {
  table.push_back({"train", "epochs", &train.epochs, "passes over the training samples", 1, 1e9});
  table.push_back({"train", "max_steps", &train.max_steps, "stop after this many steps; 0: no limit", 0, kLargest});
  table.push_back({"train", "global_batch", &train.global_batch,
                   "samples a step over all ranks, shared out with any remainder; not set: the recipe's number a rank",
                   1, 1e9});
  table.push_back({"train", "micro_batch", &train.micro_batch,
                   "samples a rank computes at a time at most, gradients are added up over a step; 0: its share of the "
                   "global batch at once",
                   0, 1e9});
  table.push_back(
      {"train", "seed", &train.seed, "initial weights, sample order and random layers follow from it", 0, kLargest});
  table.push_back({"train", "threads", &train.threads,
                   "threads a rank computes with; 0: OMP_NUM_THREADS, else its share of the machine", 0, 1024});
  table.push_back({.section = "train",
                   .key = "precision",
                   .value = &train.precision,
                   .meaning =
                       "fp32, fp64: of weights and computation; bf16, fp16: products and convolutions in 16 bits, "
                       "with fp32 weights (fp16 with a loss scale that follows overflows)",
                   .choices = {"fp32", "fp64", "bf16", "fp16"}});
  table.push_back({"train", "loss_scale", &train.loss_scale,
                   "fp16: what the loss is multiplied by at first, it then follows overflows", 1, 16777216});
  table.push_back({"train", "clip_norm", &train.clip_norm,
                   "scale the gradients down to this norm of all together; 0: leave them", 0, kHugeNumber});
  table.push_back({"train", "clip_value", &train.clip_value,
                   "clamp every element of the gradients to this magnitude; 0: leave them", 0, kHugeNumber});
  table.push_back({"train", "activation_checkpoint", &train.activation_checkpoint,
                   "every so many-th unit of the model keeps no activations and computes them again in backward; 0: "
                   "all keep them",
                   0, 1000});
  table.push_back({.section = "train",
                   .key = "activation_keep",
                   .value = &train.activation_keep,
                   .meaning = "what those units keep nevertheless: none, or the outputs of matrix products, "
                              "convolutions and attention (products), which cost most to compute again",
                   .choices = {"none", "products"}});
  table.push_back({.section = "train",
                   .key = "not_finite",
                   .value = &train.not_finite,
                   .meaning =
                       "when a loss or a gradient is no number: stop; skip the step on all ranks; rollback to the "
                       "newest checkpoint and leave that batch out",
                   .choices = {"stop", "skip", "rollback"}});
  table.push_back({"train", "compare_every", &train.compare_every,
                   "steps between two comparisons, by hash, of what ranks must hold alike; 0: never", 0, kLargest});
  table.push_back(
      {"train", "verify", &train.verify,
       "steps to make with one global batch alone and in parallel before training, which must agree: without "
       "strategy and shards, in 16 bits with fp32",
       0, 1000});
  table.push_back(
      {"train", "log_every", &train.log_every, "steps between two lines when the output is no terminal", 1, 1e9});
}

void add_times(CommConfig& comm, std::vector<Field>& table) {
  constexpr double kLongest = 1e9;
  const auto add = [&](const char* key, double* value, const char* meaning, bool above_zero) {
    Field field{"comm", key, value, meaning, 0, kLongest};
    field.above_low = above_zero;
    table.push_back(field);
  };
  add("join_timeout", &comm.join_timeout, "seconds that ranks wait for each other at the start", true);
  add("heartbeat_timeout", &comm.heartbeat_timeout,
      "seconds without a sign of life after which a rank is lost: stopped, in a debugger, its machine frozen", true);
  add("report_after", &comm.report_after, "seconds after which a warning names the ranks for which others wait", true);
  add("timeout", &comm.timeout,
      "seconds that ranks wait for one that lives but does not come; 0: REIGEN_TIMEOUT, else 600", false);
}

void add_rest(Config& config, std::vector<Field>& table) {
  if (config.data.takes_path) {
    table.push_back({"data", "path", &config.data.path,
                     "folder or file of the data, in the recipe's forms; empty: data of the program's own"});
  }
  table.push_back({"data", "workers", &config.data.workers,
                   "threads that prepare batches ahead of their use; 0: when they are asked for", 0, 64});
  table.push_back({"data", "dump_order", &config.data.dump_order,
                   "file for the sample indices of every step, a line a step, in global batch order"});
  table.push_back(
      {"data", "limit", &config.data.limit, "use only the first so many training samples; 0: all", 0, kLargest});
  table.push_back({"data", "may_differ", &config.data.may_differ,
                   "true: a run goes on with other data than it began with (texts, classes, number of samples); what "
                   "differs is said"});
  add_own(config.model, table);
  add_parallel(config.parallel, table);
  Field backend{"comm", "backend", &config.comm.backend, "through what the ranks talk"};
  backend.choices = {"auto", "shared_memory", "tcp", "mpi", "hierarchical"};
  table.push_back(backend);
  table.push_back({"comm", "algorithms", &config.comm.algorithms,
                   "which algorithm runs what, e.g. all_reduce:ring@>1M; tuned: by reigen tune; empty: by size"});
  Field network{"comm", "network", &config.comm.network, "through what machines talk"};
  network.choices = {"tcp", "mpi"};
  table.push_back(network);
  Field machine{"comm", "machine_id", &config.comm.machine_id,
                "ranks with another word count as ranks of other machines; empty: what they can open decides"};
  machine.may_differ = true;
  table.push_back(machine);
  table.push_back({"comm", "machines", &config.comm.machines,
                   "let this machine play so many, with equal shares of the ranks; 0: comm.machine_id decides", 0,
                   1e6});
  add_times(config.comm, table);
  table.push_back(
      {"checkpoint", "every_steps", &config.checkpoint.every_steps,
       "steps between two checkpoints; 0: only at the end and when stopped. A killed run loses what was not "
       "saved",
       0, kLargest});
  table.push_back({"checkpoint", "keep", &config.checkpoint.keep, "whole checkpoints to keep", 1, 1e6});
  table.push_back(
      {"checkpoint", "asynchronous", &config.checkpoint.asynchronous,
       "copy the state and write it while training goes on; takes as much memory again as each rank gives"});
}

struct ToText {
  std::string operator()(const bool* value) const { return *value ? "true" : "false"; }
  std::string operator()(const std::int64_t* value) const { return std::to_string(*value); }
  std::string operator()(const std::optional<std::int64_t>* value) const {
    return value->has_value() ? std::to_string(**value) : "not set";
  }
  std::string operator()(const double* value) const {
    std::string text = fmt::format("{}", *value);
    if (text.find_first_of(".e") == std::string::npos) text += ".0";  // TOML tells 1 from 1.0
    return text;
  }
  std::string operator()(const std::optional<double>* value) const {
    return value->has_value() ? (*this)(&**value) : "not set";
  }
  std::string operator()(const std::string* value) const { return *value; }
};

bool is_text(const Field& field) { return std::holds_alternative<std::string*>(field.value); }

bool is_unset(const Field& field) {
  const auto* const* whole = std::get_if<std::optional<std::int64_t>*>(&field.value);
  const auto* const* real = std::get_if<std::optional<double>*>(&field.value);
  return (whole != nullptr && !(*whole)->has_value()) || (real != nullptr && !(*real)->has_value());
}

// Option and meaning in two columns of a terminal that is 80 wide; a long option has a line of its own.
void add_option(std::string& text, const std::string& option, const std::string& meaning) {
  constexpr std::size_t kWidth = 79;
  constexpr std::size_t kColumn = 27;
  std::string line = "  " + option;
  if (line.size() + 1 > kColumn) {
    text += line + '\n';
    line.clear();
  }
  line.resize(kColumn, ' ');
  std::size_t begin = 0;
  while (begin < meaning.size()) {
    const std::size_t end = std::min(meaning.find(' ', begin), meaning.size());
    if (line.size() > kColumn && line.size() + 1 + (end - begin) > kWidth) {
      text += line + '\n';
      line.assign(kColumn, ' ');
    }
    if (line.size() > kColumn) line += ' ';
    line += meaning.substr(begin, end - begin);
    begin = end + 1;
  }
  text += line + '\n';
}

std::string toml_value(const Field& field) {
  const std::string text = value_text(field);
  return is_text(field) ? quote_toml(text) : text;
}

}  // namespace

std::int64_t ModelConfig::operator[](const std::string& key) const { return own_value<std::int64_t>(*this, key); }
double ModelConfig::real(const std::string& key) const { return own_value<double>(*this, key); }
const std::string& ModelConfig::text(const std::string& key) const { return own_value<std::string>(*this, key); }
bool ModelConfig::flag(const std::string& key) const { return own_value<bool>(*this, key); }

void require_own_options(const ModelConfig& own) {
  Config without;
  std::vector<std::string> sections;
  for (const Field& field : fields(without)) sections.push_back(field.section);
  std::vector<std::string> seen;
  for (const ModelOption& option : own.options) {
    const auto [section, key] = own_name(option);
    const auto refuse = [&](const char* why, const char* fix) {
      throw InvalidArgument(Report{.what = fmt::format("the recipe's option '{}' {}", option.key, why), .fix = fix});
    };
    if (!is_word(section) || !is_word(key))
      refuse("has no name for a flag", "lower case letters, digits and _; one dot at most: \"dim\", \"loss.rate\"");
    if (std::find(sections.begin(), sections.end(), section) != sections.end())
      refuse("is in a section of Reigen's", "leave the section out, or take another");
    if (std::find(seen.begin(), seen.end(), section + "." + key) != seen.end()) refuse("stands twice", "leave one out");
    seen.push_back(section + "." + key);
  }
}

std::vector<Field> fields(Config& config) {
  std::vector<Field> table;
  table.reserve(64);
  add_run(config.run, table);
  add_train(config.train, table);
  add_optim(config.optim, table);
  add_rest(config, table);
  return table;
}

std::string value_text(const Field& field) { return std::visit(ToText(), field.value); }

std::string expected_text(const Field& field) {
  if (!field.choices.empty()) return fmt::format("{}", fmt::join(field.choices, ", "));
  if (std::holds_alternative<bool*>(field.value)) return "true or false";
  if (is_text(field)) return "text";
  const bool real =
      std::holds_alternative<double*>(field.value) || std::holds_alternative<std::optional<double>*>(field.value);
  std::string text = real ? "a number" : "a whole number";
  if (field.low > -kHugeNumber) text += fmt::format(" {} {}", field.above_low ? "above" : "of at least", field.low);
  if (field.high < (real ? kHugeNumber : kLargest)) text += fmt::format(" and at most {}", field.high);
  return text;
}

std::string quote_toml(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (byte < 0x20 || byte == 0x7f) {
      quoted += fmt::format("\\u{:04X}", byte);
    } else {
      quoted += c;
    }
  }
  return quoted + '"';
}

std::string to_toml(const Config& config) {
  Config copy = config;
  std::string text;
  std::string section;
  for (const Field& field : fields(copy)) {
    if (field.section != section) {
      text += fmt::format("{}[{}]\n", section.empty() ? "" : "\n", field.section);
      section = field.section;
    }
    if (is_unset(field)) {
      text += fmt::format("# {} is not set: {}\n", field.key, field.meaning);
    } else {
      text += fmt::format("{} = {}  # {}\n", field.key, toml_value(field), field.meaning);
    }
  }
  return text;
}

std::string help_text(const Config& defaults) {
  Config copy = defaults;
  std::string text = "options (later wins: default < --config FILE < REIGEN_SECTION_KEY variables <\nflags):\n";
  add_option(text, "-n N", "ranks that share every step (default: 1)");
  for (const Field& field : fields(copy)) {
    std::string left = "--" + field.name();
    std::string meaning = field.meaning;
    if (const std::string choices = fmt::format("{}", fmt::join(field.choices, "|"));
        left.size() + choices.size() < 76) {
      left += choices.empty() ? "" : " " + choices;
    } else {
      meaning += fmt::format(": {}", fmt::join(field.choices, ", "));
    }
    std::string value = is_text(field) ? value_text(field) : toml_value(field);
    if (value.empty()) value = "empty";
    add_option(text, left, fmt::format("{} (default: {})", meaning, value));
  }
  add_option(text, "--config FILE", "read options from a TOML file");
  add_option(text, "--print-config", "print what was understood as TOML and end");
  add_option(text, "--help", "print this and end");
  return text;
}

std::uint64_t hash_of(const Config& config) {
  Config common = config;
  for (const Field& field : fields(common)) {
    if (field.may_differ) *std::get<std::string*>(field.value) = {};
  }
  return base::fnv1a(to_toml(common));
}

}  // namespace reigen::train
