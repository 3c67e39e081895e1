#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/check.h"
#include "base/environment.h"
#include "base/text.h"
#include "reigen/launch/job.h"
#include "reigen/runtime/init.h"

namespace reigen {

namespace {

// This variable tells a started process for which call of spawn() it was started.
constexpr const char* kSpawnVariable = "REIGEN_SPAWN";

int next_call() {
  static std::atomic<int> calls{0};
  return calls.fetch_add(1);
}

std::vector<std::string> own_command() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  std::vector<std::string> command;
  for (std::size_t begin = 0; begin < bytes.size();) {
    const std::size_t end = bytes.find('\0', begin);
    command.push_back(bytes.substr(begin, end - begin));
    begin = end == std::string::npos ? bytes.size() : end + 1;
  }
  REIGEN_CHECK(!command.empty(), "spawn cannot read its own command line (/proc/self/cmdline)");
  command[0] = std::filesystem::read_symlink("/proc/self/exe").string();
  return command;
}

[[noreturn]] void run_as_rank(const RankFunction& function) {
  int code = 0;
  try {
    Communicator world = init();
    function(world);
  } catch (const Error& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    code = static_cast<int>(error.exit_code());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    code = static_cast<int>(ExitCode::kBug);
  }
  std::exit(code);
}

}  // namespace

void spawn(int ranks, const RankFunction& function) {
  REIGEN_CHECK(ranks >= 1, "spawn needs at least one rank\n  got: {}", ranks);
  const int call = next_call();
  if (const auto wanted = base::environment::spawn()) {
    const int number = base::parse<int>(*wanted).value_or(0);
    if (call == number) run_as_rank(function);
    if (call < number) return;  // an earlier call of spawn(), which the program's first process has already completed
    throw InvalidArgument(
        "a spawned rank cannot spawn ranks itself\n  fix: call spawn() from the program's first process");
  }
  launch::JobOptions job;
  job.command = own_command();
  job.ranks = ranks;
  job.environment = {{kSpawnVariable, std::to_string(call)}};
  const launch::JobResult result = launch::run_job(job);
  if (result.exit_code == 0) return;
  throw Error(static_cast<ExitCode>(result.exit_code),
              fmt::format("spawn: rank {} of {} failed with exit code {}\n{}", result.failed_rank, ranks,
                          result.exit_code, result.last_lines));
}

}  // namespace reigen
