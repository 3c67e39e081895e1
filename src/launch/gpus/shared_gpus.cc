#include "launch/gpus/shared_gpus.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>

#include "base/check.h"
#include "base/log.h"
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
constexpr const char* kPipes = "CUDA_MPS_PIPE_DIRECTORY";
constexpr const char* kLogs = "CUDA_MPS_LOG_DIRECTORY";
constexpr const char* kStandardSocket = "/tmp/nvidia-mps/control";  // of a daemon that was started without kPipes
constexpr seconds kMpsStartLimit{10};
constexpr seconds kMpsQuitLimit{3};
constexpr seconds kMpsEndLimit{3};
constexpr useconds_t kMpsPause = 2000;

bool other_daemon_is_there() { return std::getenv(kPipes) != nullptr || ::access(kStandardSocket, F_OK) == 0; }

std::optional<std::string> find_control() {
  try {
    return find_program(kMpsControl);
  } catch (const InvalidArgument&) {
    return std::nullopt;
  }
}

// The environment of this process, with `variables` in place of those of the same name. The daemon sees all GPUs,
// because its numbers of GPUs would be those of its clients, which have CUDA_VISIBLE_DEVICES too.
std::vector<std::string> environment_with(const std::vector<std::string>& variables) {
  std::vector<std::string> all = variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text(*entry);
    const std::string name = text.substr(0, text.find('=') + 1);
    const bool is_replaced =
        std::any_of(variables.begin(), variables.end(), [&](const auto& one) { return one.starts_with(name); });
    if (!is_replaced && name != "CUDA_VISIBLE_DEVICES=") all.push_back(text);
  }
  return all;
}

std::vector<char*> pointers_to(const std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (const std::string& one : strings) pointers.push_back(const_cast<char*>(one.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

// Runs a program, which reads `input` and writes its output to the file `log`. Returns its exit code, or 128 + the
// signal that ended it. A program that runs longer than `limit` is killed.
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
  if (failed != 0)
    throw IoError(Report{.what = fmt::format("cannot run {}: {}", command.front(), base::errno_text(failed))});
  // The words are few, so the pipe takes them. A program that has ended already does not matter.
  [[maybe_unused]] const auto written = ::write(writer.get(), input.data(), input.size());
  writer.reset();
  const auto until = steady_clock::now() + limit;
  int status = 0;
  while (::waitpid(pid, &status, WNOHANG) == 0) {
    if (steady_clock::now() >= until) ::kill(pid, SIGKILL);
    ::usleep(kMpsPause);
  }
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
  throw BackendError(Report{.what = "--gpus-shared: " + what,
                            .got = got,
                            .expected = "NVIDIA's daemon for GPUs that processes share (MPS)",
                            .fix = fix});
}

}  // namespace

int visible_gpus(const std::string& driver_folder) {
  if (const char* listed = std::getenv("CUDA_VISIBLE_DEVICES")) {
    const std::string text(listed);
    if (text.empty() || text.starts_with("-1")) return 0;
    return static_cast<int>(std::count(text.begin(), text.end(), ',')) + 1;
  }
  std::error_code error;
  const std::filesystem::directory_iterator folder(driver_folder, error);
  return error ? 0 : static_cast<int>(std::distance(begin(folder), end(folder)));
}

SharedGpus::SharedGpus(ShareGpus share, int ranks, std::string identity) : identity_(std::move(identity)) {
  if (share == ShareGpus::kOff || other_daemon_is_there()) return;
  const int gpus = visible_gpus();
  const auto program = find_control();
  if (share == ShareGpus::kAuto && (gpus == 0 || ranks <= gpus || !program)) return;
  if (gpus == 0) refuse("no GPU is visible", "no GPU of NVIDIA's driver", "leave it out; `reigen devices` says more");
  if (!program) {
    refuse(fmt::format("there is no {} in PATH", kMpsControl), "no such program",
           "install it (Debian: nvidia-cuda-mps; else it comes with the driver), or leave the option out");
  }
  try {
    start(*program);
    base::log_info("{} ranks share {}: they use an MPS daemon of this job (--no-mps: none)", ranks,
                   base::counted(gpus, "GPU"));
  } catch (const Error& error) {
    if (share == ShareGpus::kOn) throw;
    base::log_warning("the ranks share GPUs without MPS, which is slower: {}", error.what());
  }
}

void SharedGpus::start(const std::string& program) {
  // In /tmp, because the path of a socket has at most 107 characters.
  std::string folder = "/tmp/reigen-mps-XXXXXX";
  if (::mkdtemp(folder.data()) == nullptr)
    throw IoError(Report{.what = fmt::format("cannot make the folder {}: {}", folder, base::errno_text(errno))});
  folder_ = folder;
  program_ = program;
  const std::string log = folder_ + "/start.log";
  std::vector<std::string> own = {identity_};
  for (const auto& [name, value] : variables()) own.push_back(fmt::format("{}={}", name, value));
  const int code = run_program({program_, "-d"}, environment_with(own), "", log, kMpsStartLimit);
  if (code == 0) return;
  const std::string said = first_lines_of(log);
  end();
  refuse(fmt::format("{} -d ended with {}", kMpsControl, code), said, "--no-mps starts the ranks without it");
}

SharedGpus::~SharedGpus() { end(); }

std::vector<std::pair<std::string, std::string>> SharedGpus::variables() const {
  if (folder_.empty()) return {};
  return {{kPipes, folder_}, {kLogs, folder_}};
}

void SharedGpus::end() {
  if (folder_.empty()) return;
  std::vector<std::string> own;
  for (const auto& [name, value] : variables()) own.push_back(fmt::format("{}={}", name, value));
  try {
    run_program({program_}, environment_with(own), "quit\n", folder_ + "/quit.log", kMpsQuitLimit);
  } catch (const Error&) {
    // What is left is killed below.
  }
  auto until = steady_clock::now() + kMpsEndLimit / 2;
  while (!carriers_of(identity_).empty() && steady_clock::now() < until) ::usleep(kMpsPause);
  until = steady_clock::now() + kMpsEndLimit / 2;
  while (kill_carriers(identity_) && steady_clock::now() < until) ::usleep(kMpsPause);
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
  folder_.clear();
}

}  // namespace reigen::launch
