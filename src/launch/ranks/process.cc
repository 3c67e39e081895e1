#include "launch/ranks/process.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <iterator>

#include "base/check.h"
#include "base/text.h"
#include "reigen/base/error.h"

namespace reigen::launch {

namespace {

// Runs after fork in a process that had threads, so it makes system calls only (no allocation, no locks).
[[noreturn]] void become_rank(const ProcessPlan& plan, pid_t launcher, int report) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != launcher) ::_exit(127);  // the launcher died before prctl
  struct sigaction standard {};
  standard.sa_handler = SIG_DFL;
  for (const int signal : {SIGINT, SIGTERM, SIGQUIT, SIGUSR1, SIGUSR2, SIGPIPE, SIGCHLD}) {
    ::sigaction(signal, &standard, nullptr);
  }
  ::sigprocmask(SIG_SETMASK, plan.signal_mask, nullptr);
  ::setrlimit(RLIMIT_NOFILE, plan.open_files);
  if (plan.inherited >= 0) ::fcntl(plan.inherited, F_SETFD, 0);
  if (::dup2(plan.input, 0) == 0 && ::dup2(plan.output, 1) == 1 && ::dup2(plan.error, 2) == 2) {
    ::execve(plan.program, plan.arguments, plan.environment);
  }
  const int error = errno;
  [[maybe_unused]] const auto written = ::write(report, &error, sizeof error);
  ::_exit(127);
}

}  // namespace

Process start_process(const ProcessPlan& plan) {
  std::array<int, 2> pipe{};
  REIGEN_SYSCALL(::pipe2(pipe.data(), O_CLOEXEC));
  Process process;
  process.exec_status = UniqueFd(pipe[0]);
  const UniqueFd report(pipe[1]);
  const pid_t launcher = ::getpid();
  process.pid = ::fork();
  if (process.pid == 0) become_rank(plan, launcher, report.get());
  if (process.pid < 0) {
    throw IoError({.what = "cannot start a process: " + base::errno_text(errno),
                   .fix = "fewer ranks, or raise the limits of processes (ulimit -u) and memory"},
                  ExitCode::kOsResource);
  }
  ::setpgid(process.pid, process.pid);  // the child does the same, so that a signal to its group never misses it
  process.handle = UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, process.pid, 0)));
  return process;
}

int wait_for_exec(const Process& process) {
  int error = 0;
  const auto got = REIGEN_SYSCALL(::read(process.exec_status.get(), &error, sizeof error));
  return got == static_cast<ssize_t>(sizeof error) ? error : 0;
}

std::vector<std::string> entries_of(const Variables& variables) {
  std::vector<std::string> entries;
  for (const auto& [name, value] : variables) entries.push_back(fmt::format("{}={}", name, value));
  return entries;
}

std::vector<char*> pointers_to(const std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (const std::string& one : strings) pointers.push_back(const_cast<char*>(one.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

bool has_variable(pid_t pid, const std::string& name_and_value) {
  std::ifstream file(fmt::format("/proc/{}/environ", pid));
  for (std::string variable; std::getline(file, variable, '\0');) {
    if (variable == name_and_value) return true;
  }
  return false;
}

std::vector<pid_t> carriers_of(const std::string& name_and_value) {
  std::vector<pid_t> found;
  DIR* processes = ::opendir("/proc");
  if (processes == nullptr) return found;
  while (const dirent* entry = ::readdir(processes)) {
    const pid_t pid = base::parse<pid_t>(entry->d_name).value_or(0);
    if (pid > 1 && pid != ::getpid() && has_variable(pid, name_and_value)) found.push_back(pid);
  }
  ::closedir(processes);
  return found;
}

bool kill_carriers(const std::string& name_and_value) {
  bool found = false;
  for (const pid_t pid : carriers_of(name_and_value)) found = ::kill(pid, SIGKILL) == 0 || found;
  return found;
}

}  // namespace reigen::launch
