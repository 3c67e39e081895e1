#include "launch/ranks/ending.h"

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <string_view>
#include <tuple>

#include "base/machine/host_name.h"
#include "launch/ranks/signals.h"
#include "reigen/base/error.h"

namespace reigen::launch {

namespace {

constexpr int kStopped = static_cast<int>(ExitCode::kStopped);
constexpr int kPeerLost = static_cast<int>(ExitCode::kPeerLost);

std::string_view hint(const Ending& cause) {
  switch (cause.signal) {
    case SIGKILL: return "somebody killed it, or memory ran out: `dmesg | grep -i oom` names what the kernel killed";
    case SIGSEGV:
    case SIGBUS:
    case SIGILL:
    case SIGFPE: return "a crash: `ulimit -c unlimited` keeps a core file to open with gdb";
    case SIGABRT: return "an assertion or an exception that nobody caught: see its last lines";
    case SIGPIPE: return "nobody reads its output any more";
    default: return {};
  }
}

}  // namespace

void set_status(Ending& ending, int code, int status) {
  if (code == CLD_EXITED) {
    ending.exit_code = status;
  } else {
    ending.signal = status;
  }
}

const Ending* root_cause(const std::vector<Ending>& endings) {
  const auto order = [](const Ending& e) {
    return std::tuple(e.consequence, e.code() == kPeerLost, e.round, e.signal == 0, e.rank);
  };
  const Ending* first = nullptr;
  for (const Ending& ending : endings) {
    if (!ending.ok() && (first == nullptr || order(ending) < order(*first))) first = &ending;
  }
  return first;
}

namespace {

bool is_by_us(const Ending& ending, int signal, bool killed) {
  return ending.signal == signal || (killed && ending.signal == SIGKILL);
}

bool ended_as_asked(const Ending& ending, int signal, bool killed) {
  return ending.ok() || ending.code() == kStopped || is_by_us(ending, signal, killed);
}

}  // namespace

std::optional<Ending> cause_after_stop(const std::vector<Ending>& endings, int signal, bool killed) {
  std::vector<Ending> failures;
  bool some_as_asked = false;
  for (const Ending& ending : endings) {
    const bool as_asked = ended_as_asked(ending, signal, killed);
    some_as_asked = some_as_asked || as_asked;
    if (!as_asked) failures.push_back(ending);
  }
  const Ending* cause = root_cause(failures);
  if (cause == nullptr || (cause->code() == kPeerLost && some_as_asked)) return std::nullopt;
  return *cause;
}

int code_after_stop(const std::vector<Ending>& endings, int signal, bool killed) {
  if (const auto cause = cause_after_stop(endings, signal, killed)) return cause->code();
  const auto struck = [&](const Ending& e) { return is_by_us(e, signal, killed); };
  const auto other = [](const Ending& e) { return !e.ok() && e.code() != kStopped; };
  if (std::any_of(endings.begin(), endings.end(), struck)) return 128 + signal;
  // These ranks failed only because a peer ended as asked; cause_after_stop() would have returned any other failure.
  if (std::any_of(endings.begin(), endings.end(), other)) return 128 + signal;
  const auto stopped = [](const Ending& e) { return e.code() == kStopped; };
  return std::any_of(endings.begin(), endings.end(), stopped) ? kStopped : 0;
}

std::string failure_report(const Ending& cause, int ranks, const Stopped& stopped, const std::string& last_lines) {
  const std::string how = cause.signal != 0 ? fmt::format("killed by {} ({})", signal_name(cause.signal), cause.signal)
                                            : fmt::format("exit code {}", cause.exit_code);
  std::string text;
  if (stopped.rank >= 0) {
    text += fmt::format("reigen: rank {} (pid {}) was stopped (SIGSTOP, state T) and kept the others waiting\n",
                        stopped.rank, stopped.pid);
  }
  text += fmt::format("reigen: rank {} of {} failed: {}\n", cause.rank, ranks, how);
  text += fmt::format("  host {}, pid {}, after {:.1f} s\n", base::host_name(), cause.pid,
                      std::chrono::duration<double>(cause.run_time).count());
  if (const std::string_view words = hint(cause); !words.empty()) text += fmt::format("  hint: {}\n", words);
  if (last_lines.empty()) return text;
  text += "  its last lines:\n";
  for (std::size_t begin = 0; begin < last_lines.size();) {
    const std::size_t end = std::min(last_lines.find('\n', begin), last_lines.size());
    text += "    " + last_lines.substr(begin, end - begin) + "\n";
    begin = end + 1;
  }
  return text;
}

}  // namespace reigen::launch
