#include "launch/gpus/shared_gpus.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <optional>

#include "base/check.h"
#include "base/log.h"
#include "base/machine/mps.h"
#include "base/text.h"
#include "launch/ranks/process.h"
#include "launch/ranks/program.h"
#include "reigen/base/error.h"
#include "reigen/base/unique_fd.h"

namespace reigen::launch {

namespace {

using std::chrono::seconds;
using std::chrono::steady_clock;

constexpr const char* kMpsControl = "nvidia-cuda-mps-control";
constexpr const char* kMpsLogs = "CUDA_MPS_LOG_DIRECTORY";
constexpr const char* kVisible = "CUDA_VISIBLE_DEVICES";
constexpr int kMpsClientsOfAGpu = 48;
constexpr seconds kMpsStartLimit{10};
constexpr seconds kMpsQuitLimit{3};
constexpr seconds kMpsKillLimit{1};
constexpr seconds kMpsEndLimit{1};
constexpr useconds_t kMpsPause = 2000;

std::optional<std::string> find_control() {
  try {
    return find_program(kMpsControl);
  } catch (const InvalidArgument&) {
    return std::nullopt;
  }
}

bool is_number(const std::string& text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
}

// Runs a program, which reads `input` and writes its output to the file `log`. Returns its exit code, or 128 + the
// signal that ended it. A program that runs longer than `limit` is killed. Throws IoError if it cannot be run.
int run_program(const std::vector<std::string>& command, const std::vector<std::string>& environment,
                const std::string& input, const std::string& log, seconds limit) {
  std::array<int, 2> pipe{};
  REIGEN_SYSCALL(::pipe2(pipe.data(), O_CLOEXEC));
  const UniqueFd reader(pipe[0]);
  UniqueFd writer(pipe[1]);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, reader.get(), 0);
  posix_spawn_file_actions_addopen(&actions, 1, log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  posix_spawn_file_actions_adddup2(&actions, 1, 2);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  pid_t pid = -1;
  const std::vector<char*> arguments = pointers_to(command);
  const std::vector<char*> variables = pointers_to(environment);
  const int failed =
      ::posix_spawn(&pid, command.front().c_str(), &actions, &attributes, arguments.data(), variables.data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) throw IoError(fmt::format("cannot run {}: {}", command.front(), base::errno_text(failed)));
  // `input` is shorter than the buffer of the pipe, so this does not block. The program may have ended already.
  [[maybe_unused]] const auto written = ::write(writer.get(), input.data(), input.size());
  writer.reset();
  const auto until = steady_clock::now() + limit;
  int status = 0;
  pid_t ended = 0;
  while ((ended = ::waitpid(pid, &status, WNOHANG)) == 0) {
    if (steady_clock::now() >= until) ::kill(pid, SIGKILL);
    // A program that hangs in the driver does not end.
    if (steady_clock::now() >= until + kMpsKillLimit) return 128 + SIGKILL;
    ::usleep(kMpsPause);
  }
  if (ended < 0) throw IoError(fmt::format("cannot wait for {}: {}", command.front(), base::errno_text(errno)));
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

std::string first_lines_of(const std::string& file) {
  constexpr std::size_t kMost = 400;
  std::ifstream in(file, std::ios::binary);
  std::string text(kMost, '\0');
  in.read(text.data(), kMost);
  text.resize(static_cast<std::size_t>(in.gcount()));
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text.empty() ? "it printed nothing" : text;
}

[[noreturn]] void refuse(const std::string& what, const std::string& got, const std::string& fix) {
  throw BackendError(Report{.what = "no daemon for GPUs that ranks share (MPS): " + what,
                            .got = got,
                            .expected = fmt::format("a GPU, and {}", kMpsControl),
                            .fix = fix});
}

// The daemon's numbers of GPUs are those that its clients use. So if it sees only GPUs 3 and 5, they are 0 and 1 for
// the ranks. GPUs that are named by their identities keep them.
std::string gpus_of_ranks(const std::vector<std::string>& gpus) {
  std::vector<std::string> names = gpus;
  if (std::all_of(gpus.begin(), gpus.end(), is_number)) {
    for (std::size_t i = 0; i < names.size(); ++i) names[i] = std::to_string(i);
  }
  return fmt::format("{}", fmt::join(names, ","));
}

}  // namespace

std::vector<std::string> visible_gpus(const Variables& of_ranks, const std::string& driver_folder) {
  std::vector<std::string> gpus;
  if (const auto listed = of_ranks.find(kVisible); listed != of_ranks.end()) {
    for (const std::string& one : base::split(listed->second, ',')) {
      if (!is_number(one) && !one.starts_with("GPU-") && !one.starts_with("MIG-")) break;
      gpus.push_back(one);
    }
    return gpus;
  }
  std::error_code error;
  for (std::filesystem::directory_iterator entry(driver_folder, error), end; !error && entry != end;
       entry.increment(error))
    gpus.push_back(std::to_string(gpus.size()));
  return gpus;
}

SharedGpus::SharedGpus(ShareGpus share, int ranks, const Variables& of_ranks, std::string identity)
    : identity_(std::move(identity)) {
  if (share == ShareGpus::kOff) return;
  const auto told = of_ranks.find(base::kMpsPipes);
  const bool is_told = told != of_ranks.end() && !told->second.empty();
  if (base::mps_daemon_listens(is_told ? told->second : base::mps_folder())) return;
  const std::vector<std::string> gpus = visible_gpus(of_ranks);
  const auto count = static_cast<int>(gpus.size());
  const auto program = find_control();
  const bool helps = ranks > count && count > 0 && ranks <= kMpsClientsOfAGpu * count;
  if (share == ShareGpus::kAuto && (is_told || !helps || !program)) return;
  if (is_told) {
    refuse("nobody listens where the ranks look for one", fmt::format("{}={}", base::kMpsPipes, told->second),
           fmt::format("unset {}, or start a daemon there", base::kMpsPipes));
  }
  if (gpus.empty()) refuse("no GPU is visible", "0 GPUs", "leave --gpus-shared out; `reigen devices` says more");
  if (!program) {
    refuse("the program is missing", fmt::format("no {} in PATH", kMpsControl),
           "install it (Debian: nvidia-cuda-mps; else it comes with the driver), or leave --gpus-shared out");
  }
  try {
    start(*program, of_ranks, gpus);
    base::log_info("{} ranks share {}: they use an MPS daemon of this job", ranks, base::counted(count, "GPU"));
  } catch (const Error& error) {
    end();
    if (share == ShareGpus::kOn) throw;
    base::log_warning("the ranks share GPUs without MPS, which is slower: {}", error.what());
  }
}

void SharedGpus::start(const std::string& program, const Variables& of_ranks, const std::vector<std::string>& gpus) {
  std::error_code none;
  std::string folder = (std::filesystem::temp_directory_path(none) / "reigen-mps-XXXXXX").string();
  if (::mkdtemp(folder.data()) == nullptr)
    refuse("cannot make its folder", fmt::format("{}: {}", folder, base::errno_text(errno)),
           "make room there, or let TMPDIR name another folder");
  folder_ = folder;
  program_ = program;
  Variables own = of_ranks;
  own[base::kMpsPipes] = folder_;
  own.try_emplace(kMpsLogs, folder_);
  own[identity_.substr(0, identity_.find('='))] = identity_.substr(identity_.find('=') + 1);
  environment_ = entries_of(own);
  const std::string log = folder_ + "/start.log";
  int code = 0;
  try {
    code = run_program({program_, "-d"}, environment_, "", log, kMpsStartLimit);
  } catch (const IoError& error) {
    refuse("it cannot be started", error.what(), "run `nvidia-cuda-mps-control -d` by hand to see why");
  }
  if (code != 0) {
    refuse(fmt::format("{} -d ended with {}", kMpsControl, code), first_lines_of(log),
           "run `nvidia-cuda-mps-control -d` by hand to see why");
  }
  variables_ = {{base::kMpsPipes, folder_}, {kMpsLogs, own.at(kMpsLogs)}};
  if (of_ranks.contains(kVisible)) variables_[kVisible] = gpus_of_ranks(gpus);
}

SharedGpus::~SharedGpus() { end(); }

void SharedGpus::end() {
  if (folder_.empty()) return;
  try {
    run_program({program_}, environment_, "quit\n", folder_ + "/quit.log", kMpsQuitLimit);
  } catch (const IoError&) {
    // The daemon is killed below.
  }
  auto until = steady_clock::now() + kMpsEndLimit;
  while (!carriers_of(identity_).empty() && steady_clock::now() < until) ::usleep(kMpsPause);
  until = steady_clock::now() + kMpsEndLimit;
  while (kill_carriers(identity_) && steady_clock::now() < until) ::usleep(kMpsPause);
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
  folder_.clear();
  variables_.clear();
}

}  // namespace reigen::launch
