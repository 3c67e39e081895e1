// reigen train: starts ranks of reigen-train, the program that holds the recipes and links LibTorch.
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>

#include "base/check.h"
#include "base/environment.h"
#include "reigen/base/bytes.h"
#include "reigen/base/error.h"
#include "reigen/launch/environment.h"
#include "reigen/launch/job.h"
#include "reigen_commands.h"
#include "train_program.h"

namespace reigen::apps {

namespace {

// The memory of a rank of the smallest recipe: LibTorch's libraries and a small model.
constexpr std::size_t kMemoryPerRank = 256 * kMiB;

struct TrainLine {
  std::optional<std::string> ranks;  // the value of -n
  Arguments passed;                  // everything else, in its order
  bool asks = false;                 // --help or --print-config is given: one process answers
  bool prints = false;               // --run.plan or --run.summary is given: one process answers for all ranks
  bool says_ranks = false;           // --run.ranks is given; it overrides the environment variable
  bool threads = false;              // --run.ranks threads: the ranks are threads of one process
  bool on_gpu = false;               // train.device is given by a flag or variable, and is not cpu
  bool no_mps = false;               // --no-mps: no daemon for ranks that share GPUs
};

TrainLine split_arguments(const Arguments& arguments) {
  TrainLine line;
  line.on_gpu = base::get_environment("REIGEN_TRAIN_DEVICE").value_or("cpu") != "cpu";  // a flag overrides it
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& word = arguments[i];
    if (word == "--") {
      line.passed.insert(line.passed.end(), arguments.begin() + static_cast<std::ptrdiff_t>(i), arguments.end());
      break;
    }
    if (word == "-n") {
      if (i + 1 == arguments.size()) {
        throw InvalidArgument(Report{.what = "-n needs a number", .fix = "reigen train mnist -n 2"}, ExitCode::kUsage);
      }
      line.ranks = arguments[++i];
      continue;
    }
    if (word.starts_with("-n") && word.size() > 2 && !word.starts_with("-n=")) {
      line.ranks = word.substr(2);
      continue;
    }
    if (word.starts_with("-n=")) {
      line.ranks = word.substr(3);
      continue;
    }
    if (word == "--no-mps") {
      line.no_mps = true;
      continue;
    }
    constexpr std::string_view kDevice = "--train.device";
    if (word == kDevice && i + 1 < arguments.size()) line.on_gpu = arguments[i + 1] != "cpu";
    if (word.starts_with("--train.device=")) line.on_gpu = word.substr(kDevice.size() + 1) != "cpu";
    line.asks = line.asks || word == "--help" || word == "-h" || word == "--print-config";
    // A switch without a value means true.
    for (const std::string option : {"--run.plan", "--run.summary"}) {
      const bool is_off = i + 1 < arguments.size() && arguments[i + 1] == "false";
      line.prints = line.prints || (word == option && !is_off) || word == option + "=true";
    }
    line.threads = line.threads || word == "--run.ranks=threads" ||
                   (word == "threads" && i > 0 && arguments[i - 1] == "--run.ranks");
    line.says_ranks = line.says_ranks || word == "--run.ranks" || word.starts_with("--run.ranks=");
    line.passed.push_back(word);
  }
  return line;
}

// True if srun, mpirun, torchrun or `reigen run` started this process as one of several: then it is one rank of that
// job, and not a job of one rank. If the launcher's variables are incomplete, they count as no job when -n is given,
// because the user then wants a separate job.
bool is_rank_of_other_job(const TrainLine& line) {
  try {
    return launch::detect_environment().world_size > 1;
  } catch (const InvalidArgument&) {
    if (line.ranks) return false;
    throw;
  }
}

}  // namespace

int train_command(const Arguments& arguments) {
  TrainLine line = split_arguments(arguments);
  if (!line.says_ranks) line.threads = base::get_environment("REIGEN_RUN_RANKS") == "threads";
  const int ranks = parse_ranks(line.ranks.value_or("1"));
  const std::string program = path_of_train_program();
  launch::JobOptions job;
  job.command = {program};
  job.command.insert(job.command.end(), line.passed.begin(), line.passed.end());
  if (line.asks || line.passed.empty()) become(job.command);
  if (line.prints) {  // one process tells the plan of any number of ranks
    if (line.ranks) job.command.insert(job.command.begin() + 2, {"-n", *line.ranks});
    become(job.command);
  }
  if (is_rank_of_other_job(line)) {
    // reigen-train refuses -n if it is not the number of ranks that were started.
    if (line.ranks) job.command.insert(job.command.begin() + 2, {"-n", *line.ranks});
    ::setenv("REIGEN_COMMAND", program_invocation_name, 1);
    become(job.command);
  }
  if (line.threads) {
    job.command.insert(job.command.begin() + 2, {"-n", std::to_string(ranks)});  // after the recipe's name
  }
  job.ranks = line.threads ? 1 : ranks;
  if (line.on_gpu && !line.no_mps) job.share_gpus = launch::ShareGpus::kAuto;
  job.prefix = "none";
  job.grace = launch::kGraceToSave;
  job.environment.emplace_back("REIGEN_COMMAND", program_invocation_name);
  job.memory_per_rank = line.threads ? kMemoryPerRank * static_cast<std::size_t>(ranks) : kMemoryPerRank;
  return launch::run_job(job).exit_code;
}

}  // namespace reigen::apps
