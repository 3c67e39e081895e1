#include "reigen/train/program.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "base/environment.h"
#include "base/log.h"
#include "base/machine/host_name.h"
#include "base/text.h"
#include "base/variables.h"
#include "checkpoint/directory.h"
#include "config/checks.h"
#include "reigen/base/error.h"
#include "reigen/launch/environment.h"
#include "reigen/launch/job.h"
#include "reigen/runtime/init.h"
#include "reigen/tensor/tensor_files.h"
#include "reigen/train/config.h"
#include "reigen/train/stop.h"
#include "reigen/train/trainer.h"
#include "tensor/gpu/torch_cuda.h"
#include "train/files/summary.h"
#include "train/model/device.h"
#include "train/program/ddp_bench.h"
#include "train/program/launcher_prefix.h"
#include "train/program/plan.h"
#include "train/program/rate_sweep.h"
#include "train/program/unit_table.h"
#include "train/run/agree.h"
#include "train/run/failure.h"
#include "train/run/progress.h"
#include "train/tasks/recipes.h"

namespace reigen::train {

namespace {

using Arguments = std::vector<std::string>;

constexpr const char* kDdpBench = "bench-ddp";  // passed by `reigen bench ddp` in place of a recipe's name

std::string overview() {
  std::string text =
      "reigen-train RECIPE [options]: trains a built-in recipe\n"
      "reigen train RECIPE -n N [options] starts N ranks of it\n"
      "\nrecipes:\n";
  for (const Recipe& recipe : recipes()) text += fmt::format("  {:<8} {}\n", recipe.name, recipe.summary);
  return text + "\nreigen-train RECIPE --help lists its options\n";
}

// What a program is to do: the word before its options. Without a word it fits.
enum class Stage { kFit, kValidate, kTest, kPredict };
constexpr std::pair<const char*, Stage> kWords[] = {
    {"fit", Stage::kFit}, {"validate", Stage::kValidate}, {"test", Stage::kTest}, {"predict", Stage::kPredict}};

const char* word_of(Stage stage) { return kWords[static_cast<std::size_t>(stage)].first; }

// Takes the word from the front of the options.
Stage take_word(Arguments& options) {
  if (options.empty() || options.front().starts_with('-')) return Stage::kFit;
  const std::string word = options.front();
  std::vector<std::string> known;
  for (const auto& [name, stage] : kWords) {
    known.emplace_back(name);
    if (word != name) continue;
    options.erase(options.begin());
    return stage;
  }
  const std::string near = base::nearest(word, known);
  throw common(InvalidArgument(
      Report{.what = fmt::format("unknown word {}", word),
             .expected = "fit, validate, test or predict, then the options",
             .fix = near.empty() ? "options begin with -- (--help lists them)" : fmt::format("did you mean {}?", near)},
      ExitCode::kUsage));
}

// A recipe and how the user called it: a built-in recipe by its name, any other recipe by its own program.
struct Program {
  const Recipe& recipe;
  Arguments options;      // the arguments after the recipe's name, without the word
  bool built_in = false;  // the recipe is one of reigen-train
  Stage stage = Stage::kFit;

  // The words before the options, as the user writes them.
  std::string call() const {
    const auto front = base::environment::command();
    if (built_in) return (front ? base::quote_shell(*front) + " train " : own_name() + " ") + recipe.name;
    return own_name();
  }
  static std::string own_name() { return base::quote_shell(program_invocation_name); }
};

// If a recipe describes no data, there is no option data.path.
Config defaults_of(const Recipe& recipe) {
  Config defaults = recipe.defaults;
  defaults.data.takes_path = !recipe.data.empty();
  return defaults;
}

std::string program_help(const Program& program) {
  const Recipe& recipe = program.recipe;
  const std::string call = program.built_in ? "reigen train " + recipe.name : program.call();
  const std::size_t width = call.size() + 19;
  const auto example = [&](const std::string& options, const std::string& what) {
    return fmt::format("  {:<{}} {}\n", call + options, width, what);
  };
  std::string text = recipe.summary.empty() ? recipe.name : fmt::format("{}: {}", recipe.name, recipe.summary);
  text += "\n\n" + example(" -n 2 [options]", "two ranks") +
          example(" test --run.dir DIR", "test what a run has trained; likewise validate, predict") +
          example(" --print-config", "the options as a file") + "\n";
  if (!recipe.data.empty()) text += fmt::format("data.path: {}\n", recipe.data);
  const auto all = recipe.defaults.train.global_batch;
  text += all ? fmt::format("batch: {} samples over all ranks (train.global_batch)\n\n", *all)
              : fmt::format("batch: {} samples a rank, unless train.global_batch says how many together\n\n",
                            recipe.batch_per_rank);
  return text + help_text(defaults_of(recipe));
}

const Recipe& find_recipe(const std::string& name) {
  std::vector<std::string> names;
  for (const Recipe& recipe : recipes()) {
    if (recipe.name == name) return recipe;
    names.push_back(recipe.name);
  }
  const std::string near = base::nearest(name, names);
  throw InvalidArgument(
      Report{.what = fmt::format("unknown recipe {}", name),
             .expected = fmt::format("{}", fmt::join(names, ", ")),
             .fix = near.empty() ? "reigen-train --help tells what they are" : fmt::format("did you mean {}?", near)},
      ExitCode::kUsage);
}

// The command that resumes the run: the program as it was called, with the user's own words. --run.dir and
// --run.resume are left out, because the message adds them anew. --data.may_differ is left out too, because it
// applied to that start only.
std::string resume_command(const Program& program, int ranks, const std::string& launcher) {
  const Arguments& options = program.options;
  std::string command = program.call();
  const auto front = base::environment::command();
  if (!program.built_in && front)  // started by `reigen run`
    command = fmt::format("{} run -n {} {}", base::quote_shell(*front), ranks, command);
  else if (launcher == "reigen" || launcher == "none")
    command += fmt::format(" -n {}", ranks);
  for (std::size_t i = 0; i < options.size(); ++i) {
    const std::string& word = options[i];
    if (word == "--run.dir" || word == "--run.resume" || word == "-n")
      ++i;
    else if (word == "--data.may_differ" && i + 1 < options.size() && !options[i + 1].starts_with('-'))
      ++i;
    else if (word != "--data.may_differ" && !word.starts_with("--run.dir=") && !word.starts_with("--run.resume=") &&
             !word.starts_with("--data.may_differ="))
      command += ' ' + base::quote_shell(word);
  }
  return command;
}

// Returns the user's environment variables that set options, as text such as "REIGEN_MODEL_DIM=64 ". Leaves out the
// options that resume_command() leaves out.
std::string option_variables(const Recipe& recipe) {
  Config config = defaults_of(recipe);
  std::vector<std::string> names;
  for (const Field& field : fields(config)) {
    const std::string name = field.name();
    const bool said_anew = name == "run.dir" || name == "run.resume" || name == "data.may_differ";
    // `field.may_differ` marks an option that may differ between ranks.
    if (!said_anew && !field.may_differ) names.push_back(base::variable_of(field));
  }
  std::string text;
  for (const auto& [name, value] : config::process_environment()) {
    const bool counts = !value.empty() && std::find(names.begin(), names.end(), name) != names.end();
    if (counts) text += fmt::format("{}={} ", name, base::quote_shell(value));
  }
  return text;
}

struct Job {
  const Recipe& recipe;
  Stage stage = Stage::kFit;
  Config config;
  std::string resume;  // the command that resumes the run
};

// Call it in a catch block. If only this rank has the exception, aborts the group with it, so that the other ranks do
// not wait for this rank.
void tell_the_others(const Communicator& world) {
  const Failure failure = failure_of(std::current_exception());
  if (failure.common || failure.aftermath) return;
  world.abort(fmt::format("rank {} ({}): {}", world.rank(), base::host_name(), failure.text));
}

// Writes a file of an evaluation to run.dir on rank 0. Every rank throws its error.
void write_result(const Job& job, const Communicator& world, const std::string& name,
                  const std::function<void(const std::filesystem::path&)>& write) {
  const std::string& directory = job.config.run.dir;
  together(world, name.c_str(), [&] {
    if (world.rank() != 0) return;
    write(std::filesystem::path(directory) / name);
    fmt::print("{}: in {}\n", word_of(job.stage), (std::filesystem::path(directory) / name).string());
  });
}

// validate, test and predict.
int evaluate(const Job& job, Trainer& trainer, const Task& task, const Communicator& world) {
  const bool has_directory = !job.config.run.dir.empty();
  together(world, "directory", [&] {  // before the work, so that a folder that cannot be made costs none
    if (has_directory && world.rank() == 0) checkpoint::make_directories(job.config.run.dir);
  });
  if (job.stage == Stage::kPredict) {
    const std::vector<data::NamedTensor> predictions = trainer.predict();
    write_result(job, world, "predictions.safetensors", [&](const std::filesystem::path& path) {
      std::vector<tensor::NamedTensor> tensors;
      for (const auto& [name, tensor] : predictions) tensors.push_back({.name = name, .tensor = tensor});
      tensor::write_tensors(path, tensors);
    });
    return 0;
  }
  const Figures figures = job.stage == Stage::kTest ? trainer.test() : trainer.validate();
  if (world.rank() == 0) fmt::print("{}: {}\n", word_of(job.stage), task.describe(figures));
  if (!has_directory) return 0;
  write_result(job, world, fmt::format("{}.json", word_of(job.stage)), [&](const std::filesystem::path& path) {
    format::write_file_atomically(path, std::string_view(to_json(figures)));
  });
  return 0;
}

// A task like the first, with data of its own, which it may refer to.
std::shared_ptr<Task> second_task(const Job& job) {
  const auto made = std::make_shared<Training>(job.recipe.make(job.config, /*without_memory=*/false));
  made->data->setup();
  return {made, made->task.get()};
}

int train_rank(const Job& job, const Communicator& world) {
  try {
    const bool measures_units = job.config.mesh.pp > 1 && job.config.mesh.cut == "time";
    const config::MeshConfig& mesh = job.config.mesh;
    const bool divides = mesh.tp > 1 || mesh.cp > 1 || mesh.pp > 1;  // then train.verify makes a second model
    const bool computes_first = (job.config.train.verify > 0 && !divides) || measures_units;
    const Training made = job.recipe.make(job.config, /*without_memory=*/!computes_first);
    TrainerOptions options{.name = job.recipe.name,
                           .config = job.config,
                           .batch_per_rank = job.recipe.batch_per_rank,
                           .stop_requested = stop_requested,
                           .columns = terminal_columns(),
                           .resume_command = job.resume,
                           .make_task = [&] { return second_task(job); }};
    if (job.config.run.find_lr) return find_rate(*made.task, *made.data, world, options);
    if (job.recipe.callbacks) options.callbacks = job.recipe.callbacks(job.config);
    Trainer trainer(*made.task, *made.data, world, options);
    if (job.stage != Stage::kFit) return evaluate(job, trainer, *made.task, world);
    return static_cast<int>(trainer.fit().stopped ? ExitCode::kStopped : ExitCode::kOk);
  } catch (...) {
    tell_the_others(world);
    throw;
  }
}

// Installs the signal handlers for requests to stop. When a request is received, rank 0 tells the user, unless Reigen's
// launcher does.
void listen(const RunConfig& run, const launch::Environment& environment) {
  const bool tells = environment.rank == 0 && environment.source != "reigen";
  install_stop_handlers(
      {.signals = parse_stop_signals(run.stop_signals), .after = parse_stop_time(run.stop_after), .tells = tells});
  const auto end = base::get_environment("SLURM_JOB_END_TIME");
  if (!end || !run.stop_after.empty() || environment.rank != 0) return;
  base::log_info(
      "the job's time ends at {} (SLURM_JOB_END_TIME): sbatch --signal=USR1@120 or --run.stop_after saves before",
      *end);
}

InitOptions init_options(const Config& config) {
  const comm::GroupOptions& group = config.comm.group;
  return {.backend = group.backend,
          .algorithms = group.algorithms,
          .segments = group.segments,
          .connections = group.connections,
          .network = group.network,
          .machine_id = group.machine_id,
          .device = config::device_of(config.train).value(),
          .device_backend = group.device_backend,
          .timeout = group.timeout,
          .join_timeout = group.join_timeout,
          .heartbeat_timeout = group.heartbeat_timeout,
          .report_after = group.report_after};
}

// Options for a rank that is a process. With comm.machines, one machine acts as several.
InitOptions init_options(const Config& config, const launch::Environment& environment) {
  InitOptions options = init_options(config);
  const std::int64_t machines = config.comm.machines;
  if (machines == 0) return options;
  options.machine_id = fmt::format("machine{}", environment.rank * machines / environment.world_size);
  return options;
}

void require_one_process(const Config& config, const launch::Environment& environment, const std::string& call) {
  if (environment.world_size > 1) {
    throw InvalidArgument(Report{.what = "run.ranks = threads: this is one of several processes already",
                                 .got = fmt::format("{} processes from {}", environment.world_size, environment.source),
                                 .fix = fmt::format("start one process: {} -n N --run.ranks threads", call)});
  }
  if (config.comm.machines > 0) {
    throw InvalidArgument(Report{.what = "comm.machines: ranks that are threads share one memory",
                                 .got = fmt::format("{}", config.comm.machines),
                                 .expected = "0",
                                 .fix = "leave it out, or run.ranks = processes"},
                          ExitCode::kUsage);
  }
}

int run_as_threads(Job job, int ranks, const launch::Environment& environment, const std::string& call) {
  require_one_process(job.config, environment, call);
  listen(job.config.run, environment);
  if (job.config.train.device != "cpu") tensor::open_torch_cuda();
  std::vector<int> codes(static_cast<std::size_t>(ranks));
  run_threads(
      ranks, [&](const Communicator& world) { codes[static_cast<std::size_t>(world.rank())] = train_rank(job, world); },
      init_options(job.config));
  return codes[0];
}

// The path that starts this program. The user's own path is kept if there is one, because it goes into the command
// that resumes the run.
std::string path_of_program() {
  const std::string self = "/proc/self/exe";
  const std::string called = program_invocation_name;
  std::error_code error;
  if (called.find('/') != std::string::npos && std::filesystem::equivalent(called, self, error)) return called;
  return std::filesystem::read_symlink(self).string();
}

// `reigen-train mnist -n 2` without a launcher: this process becomes the launcher.
int run_launcher(const Program& program, int ranks, bool on_gpu) {
  const Arguments& options = program.options;
  launch::JobOptions job{
      .command = {path_of_program()}, .ranks = ranks, .prefix = "none", .grace = launch::kGraceToSave};
  if (program.built_in) job.command.push_back(program.recipe.name);
  if (program.stage != Stage::kFit) job.command.push_back(word_of(program.stage));
  if (on_gpu) job.share_gpus = launch::ShareGpus::kAuto;
  for (std::size_t i = 0; i < options.size(); ++i) {
    if (options[i] == "-n")
      ++i;
    else
      job.command.push_back(options[i]);
  }
  return launch::run_job(job).exit_code;
}

// Refuses -n N if the launcher did not start N ranks, because a process that is one rank cannot become several.
void require_ranks_of_launcher(std::optional<int> wanted, const launch::Environment& environment) {
  if (!wanted || *wanted == environment.world_size) return;
  const bool alone = environment.source == "none";
  throw InvalidArgument(
      Report{.what =
                 alone ? fmt::format("-n {}: this is one process, which no launcher started", *wanted)
                       : fmt::format("-n {}: {} started {} ranks", *wanted, environment.source, environment.world_size),
             .fix = alone ? fmt::format("reigen run -n {} and the same words, or --run.ranks threads", *wanted)
                          : "say the number of ranks to the launcher only"},
      ExitCode::kUsage);
}

// All ranks were given the same name, so the error for an unknown one is printed once.
const Recipe& common_recipe(const std::string& name) {
  try {
    return find_recipe(name);
  } catch (Error& error) {
    error.mark_common();
    throw;
  }
}

// An evaluation of run.dir takes its newest checkpoint, unless the user names other weights. Those with which the run
// itself began are in its config.toml, and are not meant.
void choose_weights(RunConfig& run, Stage stage, const Arguments& given, bool has_options_of_run) {
  const bool names_weights = std::any_of(given.begin(), given.end(), [](const std::string& word) {
    return word == "--run.weights" || word.starts_with("--run.weights=");
  });
  if (has_options_of_run && !names_weights && !base::get_environment("REIGEN_RUN_WEIGHTS")) run.weights.clear();
  const auto refuse = [&](const std::string& what, const std::string& fix) {
    return common(InvalidArgument(Report{.what = what, .fix = fix}));
  };
  if (run.weights.empty() && run.resume.empty()) {
    if (run.dir.empty())
      throw refuse(fmt::format("{}: of which weights?", word_of(stage)),
                   "name a run with --run.dir DIR, or a file with --run.weights PATH");
    run.resume = "true";
  }
  if (stage == Stage::kPredict && run.dir.empty())
    throw refuse("predict: where to?", "name the directory for predictions.safetensors with --run.dir DIR");
}

// An evaluation has the options of its run, unless the user names other ones.
Arguments with_options_of_run(Arguments options) {
  std::string directory = base::get_environment("REIGEN_RUN_DIR").value_or("");
  for (std::size_t i = 0; i < options.size(); ++i) {
    if (options[i] == "--config" || options[i].starts_with("--config=")) return options;
    if (options[i] == "--run.dir" && i + 1 < options.size()) directory = options[i + 1];
    if (options[i].starts_with("--run.dir=")) directory = options[i].substr(std::string("--run.dir=").size());
  }
  std::error_code ignored;
  const std::filesystem::path file = std::filesystem::path(directory) / "config.toml";
  if (!directory.empty() && std::filesystem::exists(file, ignored)) {
    options.emplace_back("--config");
    options.push_back(file.string());
  }
  return options;
}

// What is printed in place of a run: run.plan and run.summary. Rank 0 says it for all ranks.
void print_instead(const CommandLine& line, const Recipe& recipe, const launch::Environment& environment) {
  if (environment.rank != 0) return;
  if (line.config.run.plan) {
    fmt::print("{}", plan_of(line.config, {.name = recipe.name,
                                           .samples = recipe.samples,
                                           .batch_per_rank = recipe.batch_per_rank,
                                           .ranks = line.ranks.value_or(environment.world_size)}));
    return;
  }
  const Training made = recipe.make(line.config, /*without_memory=*/false);
  fmt::print("{}", unit_table_of(recipe.name, *made.task, *made.data, line.config));
}

int run_recipe(const Program& program, const launch::Environment& environment) {
  const Recipe& recipe = program.recipe;
  const Arguments options = program.stage == Stage::kFit ? program.options : with_options_of_run(program.options);
  CommandLine line = [&] {
    try {
      return read_options(defaults_of(recipe), options, config::process_environment());
    } catch (Error& error) {
      error.mark_common();  // all ranks were given the same arguments
      throw;
    }
  }();
  if (line.help || line.print_config) {
    if (environment.rank == 0) fmt::print("{}", line.help ? program_help(program) : to_toml(line.config));
    return 0;
  }
  if (line.config.run.find_lr && program.stage != Stage::kFit) {
    throw common(InvalidArgument(Report{.what = fmt::format("{}: run.find_lr trains", word_of(program.stage)),
                                        .fix = "leave the word out, or run.find_lr"}));
  }
  if (line.config.run.plan || line.config.run.summary) {
    print_instead(line, recipe, environment);
    return 0;
  }
  if (program.stage != Stage::kFit) {
    choose_weights(line.config.run, program.stage, program.options, options.size() > program.options.size());
  }
  prepare_environment(line.config.train);
  line.config.train = with_device_chosen(line.config.train);
  const bool threads = line.config.run.ranks == "threads";
  const int ranks = line.ranks.value_or(environment.world_size);
  Job job{.recipe = recipe,
          .stage = program.stage,
          .config = line.config,
          .resume = option_variables(recipe) + launcher_prefix(environment) +
                    resume_command(program, ranks, environment.source)};
  if (threads) return run_as_threads(std::move(job), ranks, environment, program.call());
  if (line.ranks && environment.source == "none" && ranks > 1)
    return run_launcher(program, ranks, line.config.train.device != "cpu");
  require_ranks_of_launcher(line.ranks, environment);
  if (line.config.train.device != "cpu") tensor::open_torch_cuda();  // loads the CUDA runtime that the group uses
  Communicator world = init(init_options(line.config, environment));
  listen(line.config.run, environment);
  return train_rank(job, world);
}

int run_ddp_bench(const Arguments& arguments, const launch::Environment& environment) {
  DdpBenchOptions options;
  const Recipe* recipe = nullptr;
  CommandLine line;
  try {
    options = parse_ddp_bench(arguments);
    recipe = &find_recipe(options.recipe);
    line = read_options(recipe->defaults, options.rest, config::process_environment());
    require_measurable(line.config);
  } catch (Error& error) {
    error.mark_common();  // all ranks were given the same arguments
    throw;
  }
  if (options.help || line.help) {
    if (environment.rank == 0) fmt::print("{}", ddp_bench_help());
    return 0;
  }
  prepare_environment(line.config.train);
  line.config.train = with_device_chosen(line.config.train);
  if (line.config.train.device != "cpu") tensor::open_torch_cuda();  // loads the CUDA runtime that the group uses
  const auto bench = [&](const Communicator& world) {
    try {
      report_ddp(*recipe, line.config, options, world);
    } catch (...) {
      tell_the_others(world);
      throw;
    }
  };
  if (line.config.run.ranks == "threads") {
    const int ranks = line.ranks.value_or(1);
    require_one_process(line.config, environment, "reigen bench ddp");
    run_threads(ranks, bench, init_options(line.config));
    return 0;
  }
  require_ranks_of_launcher(line.ranks, environment);
  Communicator world = init(init_options(line.config, environment));
  bench(world);
  return 0;
}

}  // namespace

namespace {

// Returns the result of body(), or the exit code of its error, which is printed once for the whole job.
template <class Body>
int told(const Body& body) {
  launch::Environment environment;
  try {
    environment = launch::detect_environment();
    return body(environment);
  } catch (...) {
    return report(failure_of(std::current_exception()), environment.rank, environment.world_size);
  }
}

}  // namespace

CommandLine read_options(const Config& defaults, const std::vector<std::string>& arguments,
                         const Environment& environment) {
  CommandLine line = config::read_command_line(defaults, arguments, environment);
  parse_stop_signals(line.config.run.stop_signals);
  parse_stop_time(line.config.run.stop_after);
  return line;
}

int run(int argc, char** argv, const Recipe& recipe) {
  return told([&](const launch::Environment& environment) {
    if (!recipe.make) throw InvalidArgument("train::run: the recipe does not say how to make its task (Recipe::make)");
    Arguments options(argv + std::min(argc, 1), argv + argc);
    const Stage stage = take_word(options);
    return run_recipe({.recipe = recipe, .options = std::move(options), .stage = stage}, environment);
  });
}

int run_program(int argc, char** argv) {
  return told([&](const launch::Environment& environment) {
    const Arguments arguments(argv + std::min(argc, 1), argv + argc);
    if (arguments.empty()) {
      fmt::print(stderr, "{}", overview());
      return static_cast<int>(ExitCode::kUsage);
    }
    if (arguments[0] == "--help" || arguments[0] == "-h") {
      fmt::print("{}", overview());
      return 0;
    }
    if (arguments[0] == "--version") {
      fmt::print("reigen-train {}\n", REIGEN_VERSION);
      return 0;
    }
    Arguments options(arguments.begin() + 1, arguments.end());
    if (arguments[0] == kDdpBench) return run_ddp_bench(options, environment);
    const Recipe& recipe = common_recipe(arguments[0]);
    const Stage stage = take_word(options);
    return run_recipe({.recipe = recipe, .options = std::move(options), .built_in = true, .stage = stage}, environment);
  });
}

}  // namespace reigen::train
