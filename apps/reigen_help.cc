// The commands help and version, and functions that several commands share.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdio>
#include <limits>

#include "base/environment.h"
#include "base/machine/cores.h"
#include "reigen/base/error.h"
#include "reigen_commands.h"

namespace reigen::apps {

namespace {

// Refuses mpirun's -np, which would otherwise be read as the short option -n with the value "p".
[[noreturn]] void refuse_np() {
  throw InvalidArgument(Report{.what = "unknown option `-np`", .fix = "the number of ranks is -n N, as in -n 2"},
                        ExitCode::kUsage);
}

void print_environment() {
  fmt::print("Variables that Reigen reads:\n");
  std::size_t width = 0;
  for (const auto& variable : base::environment::table()) width = std::max(width, std::string(variable.name).size());
  for (const auto& variable : base::environment::table()) {
    fmt::print("  {:<{}}  {}\n  {:<{}}  {}\n", variable.name, width, variable.meaning, "", width, variable.values);
  }
  fmt::print(
      "\nVariables that `reigen run` sets for every rank, with torchrun's meaning:\n"
      "  RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK GROUP_WORLD_SIZE\n"
      "  ROLE_NAME ROLE_RANK ROLE_WORLD_SIZE MASTER_ADDR MASTER_PORT\n"
      "  TORCHELASTIC_RUN_ID TORCHELASTIC_RESTART_COUNT TORCHELASTIC_MAX_RESTARTS\n"
      "  OMP_NUM_THREADS (its share of the cores) and PYTHONUNBUFFERED (1), if they are not set\n"
      "\nA program may also be started by torchrun, mpirun (Open MPI, MPICH) or srun: their variables are read.\n");
}

}  // namespace

void refuse_unknown_flag(const Arguments& arguments, const std::vector<std::string>& known,
                         const std::string& command) {
  for (const std::string& word : arguments) {
    const std::string flag = word.substr(0, word.find('='));
    if (flag == "-np") refuse_np();
    const bool negative = flag.size() > 1 && flag[0] == '-' && std::isdigit(static_cast<unsigned char>(flag[1])) != 0;
    if (!flag.starts_with("-") || negative) continue;
    const bool with_value = !flag.starts_with("--") && flag.size() > 2;  // -n4
    const std::string name = with_value ? flag.substr(0, 2) : flag;
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    const std::string meant = nearest(flag, known);
    throw InvalidArgument(
        {.what = "unknown option `" + flag + "`",
         .fix = meant.empty() ? "`reigen " + command + " --help` lists the options" : "did you mean `" + meant + "`?"},
        ExitCode::kUsage);
  }
}

int parse_ranks(const std::string& text, ExitCode out_of_range) {
  if (text == "cpu" || text == "auto") return base::share_cores(1).total;
  long long value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (text == "p") refuse_np();
  if (stop != end || error == std::errc::invalid_argument) {
    throw InvalidArgument({.what = "-n is not a number",
                           .got = "-n " + text,
                           .expected = "-n N with N at least 1, or cpu",
                           .fix = "-n 2 starts two processes"},
                          ExitCode::kUsage);
  }
  if (error != std::errc() || value < 1 || value > std::numeric_limits<int>::max()) {
    throw InvalidArgument({.what = "the number of ranks is out of range",
                           .got = "-n " + text,
                           .expected = "at least 1",
                           .fix = "-n 2 starts two processes"},
                          out_of_range);
  }
  return static_cast<int>(value);
}

std::string overview() {
  return "reigen " REIGEN_VERSION
         ": distributed training for LibTorch\n"
         "\n"
         "  reigen run -n N [options] [--] program [arguments...]     start N processes of a program\n"
         "  reigen train RECIPE -n N [--section.key value ...]        train a built-in recipe, e.g. mnist\n"
         "  reigen generate DIR --prompt TEXT [options]               continue a text with a trained decoder\n"
         "  reigen bench OP -n N [options]                            time an operation between processes, e.g. "
         "all_reduce\n"
         "  reigen tune -n N [--backend B]                            find the fastest algorithms of this machine\n"
         "  reigen devices                                            the GPUs that ranks can use, and what is "
         "missing\n"
         "  reigen flight [PID]                                       what the ranks of a running job called last\n"
         "  reigen checkpoint inspect|verify|diff|... PATH            look at checkpoints, change their form\n"
         "  reigen data pack|inspect|verify|index PATH                datasets in containers: LMDB, HDF5, TFRecord, "
         "tar\n"
         "  reigen help environment                                   variables that are read and set\n"
         "  reigen version\n"
         "\n"
         "`reigen run --help`, `reigen train RECIPE --help` and `reigen bench --help` list the options.\n";
}

int help_command(const Arguments& arguments) {
  if (arguments.empty()) {
    fmt::print("{}", overview());
    return 0;
  }
  const std::string& topic = arguments.front();
  if (topic == "run") return run_command({"--help"});
  if (topic == "train") return train_command({"--help"});
  if (topic == "generate") return generate_command({"--help"});
  if (topic == "bench") return bench_command({"--help"});
  if (topic == "tune") return tune_command({"--help"});
  if (topic == "devices") return devices_command({"--help"});
  if (topic == "flight") return flight_command({"--help"});
  if (topic == "checkpoint") return checkpoint_command({"--help"});
  if (topic == "data") return data_command({"--help"});
  if (topic == "environment") {
    print_environment();
    return 0;
  }
  const std::string meant = nearest(
      topic, {"run", "train", "generate", "bench", "tune", "devices", "flight", "checkpoint", "data", "environment"});
  throw InvalidArgument(
      {.what = "no help on this",
       .got = topic,
       .expected = "run, train, generate, bench, tune, devices, flight, checkpoint, data or environment",
       .fix = meant.empty() ? std::string() : "did you mean `reigen help " + meant + "`?"},
      ExitCode::kUsage);
}

int version_command() {
  fmt::print("reigen " REIGEN_VERSION "\ncontainers: " REIGEN_CONTAINERS "\n");
  return 0;
}

}  // namespace reigen::apps
