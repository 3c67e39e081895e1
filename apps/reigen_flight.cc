// reigen flight: shows the last calls of the ranks of a running job, also while the job hangs.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <string>

#include "base/machine/process_state.h"
#include "base/text.h"
#include "flight/find.h"
#include "flight/json.h"
#include "flight/summary.h"
#include "reigen/base/error.h"
#include "reigen_commands.h"
#include "usage.h"

namespace reigen::apps {

namespace {

constexpr std::size_t kLines = 100;

std::string ranks_of(const flight::LiveJob& job) {
  return base::counted(static_cast<std::int64_t>(job.ranks.size()), "rank");
}

pid_t parse_pid(const std::string& text) {
  const auto pid = base::parse<pid_t>(text);
  if (pid && *pid > 0) return *pid;
  throw InvalidArgument(Report{.what = "not the number of a process",
                               .got = text,
                               .expected = "the PID of a launcher or of a rank",
                               .fix = "`reigen flight` alone finds the job that runs"},
                        ExitCode::kUsage);
}

flight::LiveJob only_job() {
  std::vector<flight::LiveJob> jobs = flight::find_jobs();
  if (jobs.size() == 1) return std::move(jobs.front());
  if (jobs.empty()) {
    throw InvalidArgument(Report{.what = "no job of this user runs on this machine",
                                 .fix = "name one of its processes: reigen flight PID"},
                          ExitCode::kInputMissing);
  }
  std::string list;
  for (const flight::LiveJob& job : jobs) {
    list += fmt::format("\n    {:>7}  {}  {}", job.pid, ranks_of(job), job.command);
  }
  throw InvalidArgument(Report{.what = "several jobs of this user run on this machine",
                               .got = list,
                               .fix = fmt::format("name one of them: reigen flight {}", jobs.front().pid)},
                        ExitCode::kUsage);
}

// A text such as "stopped (SIGSTOP)" or "ended"; empty if the process runs.
std::string trouble_of(pid_t pid) {
  switch (base::state_of(pid)) {
    case 'T': return "stopped (SIGSTOP)";
    case 't': return "stopped by a debugger";
    case '?':
    case 'Z':
    case 'X': return "ended";
    default: return {};
  }
}

void print(const flight::LiveJob& job) {
  fmt::print("job {}: {}, {}\n", job.pid, ranks_of(job), job.command);
  for (const flight::ReadRank& rank : job.ranks) {
    if (rank.pid == 0) continue;
    const std::string trouble = trouble_of(rank.pid);
    if (!trouble.empty()) fmt::print("  rank {} (pid {}) is {}\n", rank.rank, rank.pid, trouble);
  }
  const std::string lines = flight::summary(job.ranks, flight::time_now(), kLines);
  fmt::print("{}", lines.empty() ? "  the ranks have called nothing of each other\n" : lines);
}

}  // namespace

int flight_command(const Arguments& arguments) {
  CLI::App app("Shows what the ranks of a running job called last, and who waits for whom.", "reigen flight");
  app.footer("PID is the launcher's or any rank's; without it the one job of this user that runs.");
  std::string pid;
  std::string json;
  app.add_option("PID", pid, "a process of the job");
  app.add_option("--json", json, "write every recorded operation to FILE instead (-: stdout)")->type_name("FILE");
  Arguments words(arguments.rbegin(), arguments.rend());  // CLI11 takes words from the back
  try {
    app.parse(words);
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", app.help());
    return 0;
  } catch (const CLI::ParseError& error) {
    throw usage_error(error, "`reigen flight --help` lists the options");
  }
  const flight::LiveJob job = pid.empty() ? only_job() : flight::find_job(parse_pid(pid));
  if (json.empty()) {
    print(job);
  } else {
    flight::write_json_lines(json, job.ranks);
  }
  return 0;
}

}  // namespace reigen::apps
