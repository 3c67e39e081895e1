// reigen run. Its own options come first, then a program with the program's arguments, which are passed on unchanged.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <memory>
#include <string>

#include "base/log.h"
#include "reigen/base/bytes.h"
#include "reigen/base/error.h"
#include "reigen/launch/environment.h"
#include "reigen/launch/job.h"
#include "reigen_commands.h"
#include "usage.h"

namespace reigen::apps {

namespace {

struct Formatter : CLI::Formatter {
  std::string make_usage(const CLI::App*, std::string) const override {
    return "Usage: reigen run -n N [options] [--] program [arguments...]\n";
  }
};

struct RunOptions {
  std::string ranks = "1";
  std::string log_dir;
  std::string flight;
  std::string prefix = "auto";
  double grace = 30;
  int threads = 0;
  std::string memory;
  bool gpus_shared = false;
  bool no_mps = false;
};

void add_options(CLI::App& app, RunOptions& options) {
  app.add_option("-n,--nproc-per-node,--nproc_per_node", options.ranks,
                 "processes to start (default 1); cpu: one a core")
      ->type_name("N");
  app.add_option("--log-dir", options.log_dir, "keep what rank N prints in DIR/rank_N.log")->type_name("DIR");
  app.add_option("--flight", options.flight, "write the ranks' last 1,024 operations to FILE at the end, as JSON lines")
      ->type_name("FILE");
  app.add_option("--prefix", options.prefix, "[rank] before every line: auto (if N > 1), always, none")
      ->type_name("WHEN");
  app.add_option("--grace", options.grace, "seconds between Ctrl-C or TERM and SIGKILL (default 30)")->type_name("S");
  app.add_option("--threads", options.threads,
                 "OMP_NUM_THREADS of a rank (default: as set, else its share of the cores)")
      ->type_name("T");
  app.add_option("--memory-per-rank", options.memory, "refuse to start when N of this do not fit (default 64M)")
      ->type_name("SIZE");
  auto* const shared =
      app.add_flag("--gpus-shared", options.gpus_shared,
                   "run a daemon of NVIDIA for GPUs that ranks share (MPS; default: with fewer GPUs than ranks)");
  app.add_flag("--no-mps", options.no_mps, "do not run that daemon")->excludes(shared);
}

const std::vector<std::string> kFlags = {
    "-n",        "--nproc-per-node", "--log-dir",         "--prefix",      "--flight", "--grace",
    "--threads", "--help",           "--memory-per-rank", "--gpus-shared", "--no-mps"};
const std::vector<std::string> kSwitches = {"--help", "-h", "--gpus-shared", "--no-mps"};  // flags without a value

[[noreturn]] void refuse_usage(const std::string& what, const std::string& fix) {
  throw InvalidArgument({.what = what, .fix = fix}, ExitCode::kUsage);
}

// Where the program's command line begins: at the first word that is neither an option nor an option's value.
std::size_t find_program_word(const Arguments& arguments) {
  std::size_t i = 0;
  while (i < arguments.size() && arguments[i].starts_with("-") && arguments[i] != "--") {
    const std::string flag = arguments[i].substr(0, arguments[i].find('='));
    const bool short_form = flag.starts_with("-n") && !flag.starts_with("--") && flag.size() > 2;  // -n4
    const bool is_switch = std::find(kSwitches.begin(), kSwitches.end(), flag) != kSwitches.end();
    const bool known = is_switch || short_form || flag == "--nproc_per_node" ||
                       std::find(kFlags.begin(), kFlags.end(), flag) != kFlags.end();
    if (!known) {
      const std::string meant = nearest(flag, kFlags);
      refuse_usage("unknown option `" + flag + "`",
                   meant.empty() ? "`reigen run --help` lists the options; options of the program stand behind its name"
                                 : "did you mean `" + meant + "`? (options of the program stand behind its name)");
    }
    const bool value_follows = !is_switch && !short_form && arguments[i].find('=') == std::string::npos;
    i += value_follows ? 2 : 1;
  }
  return std::min(i, arguments.size());
}

std::chrono::milliseconds parse_grace(double seconds) {
  if (std::isnan(seconds) || seconds < 0 || seconds > 1e9) {
    throw InvalidArgument(
        {.what = "--grace is out of range", .got = fmt::format("{}", seconds), .expected = "0 or more seconds"});
  }
  return std::chrono::milliseconds(std::llround(seconds * 1000));
}

// The job that this process is a rank of, if any. Incomplete variables of another launcher count as no job, because
// `reigen run` sets all of them anew for its ranks.
launch::Environment surrounding_job() {
  try {
    return launch::detect_environment();
  } catch (const InvalidArgument&) {
    return {};
  }
}

void warn_inside_other_job() {
  const launch::Environment outer = surrounding_job();
  if (outer.world_size == 1) return;
  base::log_warning(
      "{} already started {} of these: each becomes a job of its own; let {} start the program itself, without reigen "
      "run",
      outer.source, outer.world_size, outer.source);
}

}  // namespace

int run_command(const Arguments& arguments) {
  RunOptions options;
  CLI::App app("Starts N processes of a program on this machine and watches them.", "reigen run");
  app.footer("reigen run -n 2 ./train --epochs 3      what follows the program's name belongs to the program");
  app.formatter(std::make_shared<Formatter>());
  add_options(app, options);
  const std::size_t split = find_program_word(arguments);
  Arguments own(arguments.begin(), arguments.begin() + static_cast<std::ptrdiff_t>(split));
  std::reverse(own.begin(), own.end());  // CLI11 takes words from the back
  try {
    app.parse(own);
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", app.help());
    return 0;
  } catch (const CLI::ParseError& error) {
    throw usage_error(error, "`reigen run --help` lists the options");
  }

  launch::JobOptions job;
  job.ranks = parse_ranks(options.ranks);
  job.log_dir = options.log_dir;
  job.flight_file = options.flight;
  job.prefix = options.prefix;
  job.threads_per_rank = options.threads;
  job.grace = parse_grace(options.grace);
  job.share_gpus = options.no_mps        ? launch::ShareGpus::kOff
                   : options.gpus_shared ? launch::ShareGpus::kOn
                                         : launch::ShareGpus::kAuto;
  if (!options.memory.empty()) job.memory_per_rank = parse_bytes(options.memory);
  const bool marked = split < arguments.size() && arguments[split] == "--";
  job.command.assign(arguments.begin() + static_cast<std::ptrdiff_t>(split + (marked ? 1 : 0)), arguments.end());
  if (job.command.empty()) refuse_usage("no program given", "reigen run -n 2 ./program");
  warn_inside_other_job();
  job.environment.emplace_back("REIGEN_COMMAND", program_invocation_name);
  return launch::run_job(job).exit_code;
}

}  // namespace reigen::apps
