#include "launch/ranks/guardian.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "base/text.h"
#include "launch/ranks/process.h"

namespace reigen::launch {

namespace {

constexpr pid_t kDismissed = 0;

void close_all_but(int kept) {
  const auto keep = static_cast<unsigned>(kept);
  const bool done = (keep == 0 || ::syscall(SYS_close_range, 0U, keep - 1, 0U) == 0) &&
                    ::syscall(SYS_close_range, keep + 1, ~0U, 0U) == 0;
  if (done) return;
  const long limit = ::sysconf(_SC_OPEN_MAX);  // close_range failed: kernels before 5.9 do not have it
  for (int fd = 0; fd < limit; ++fd) {
    if (fd != kept) ::close(fd);
  }
}

// A rank of an outer job may have started this job. This function changes the outer job's identity in the environment
// of this inner guardian, so that the outer guardian's search does not kill the inner one before its work is done.
void hide_outer_job() {
  if (char* value = std::getenv("REIGEN_JOB"); value != nullptr && *value != '\0') *value = '-';
}

[[noreturn]] void guard(int line, const std::string& identity) {
  ::setsid();
  ::prctl(PR_SET_NAME, "reigen-guardian");
  sigset_t all;
  sigfillset(&all);
  ::sigprocmask(SIG_SETMASK, &all, nullptr);
  hide_outer_job();
  close_all_but(line);
  std::vector<pid_t> groups;
  for (;;) {
    pid_t group = 0;
    const ssize_t got = ::read(line, &group, sizeof group);
    if (got < 0 && errno == EINTR) continue;
    if (got != static_cast<ssize_t>(sizeof group)) break;
    if (group == kDismissed) ::_exit(0);
    groups.push_back(group);
  }
  for (const pid_t group : groups) ::kill(-group, SIGKILL);
  for (int round = 0; round < 200 && kill_carriers(identity); ++round) ::usleep(5000);
  ::_exit(0);
}

}  // namespace

Guardian::Guardian(const std::string& identity) {
  std::array<int, 2> ends{};
  // A socket instead of a pipe, because a write to a guardian that somebody killed must not end this process with
  // SIGPIPE.
  REIGEN_SYSCALL(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()));
  const UniqueFd reader(ends[0]);
  line_ = UniqueFd(ends[1]);
  pid_ = ::fork();
  if (pid_ == 0) {
    line_.reset();
    guard(reader.get(), identity);
  }
  if (pid_ < 0) {
    throw IoError({.what = "cannot start a process: " + base::errno_text(errno),
                   .fix = "raise the limit of processes (ulimit -u)"},
                  ExitCode::kOsResource);
  }
}

Guardian::~Guardian() {
  constexpr pid_t kMessage = kDismissed;
  const bool told =
      ::send(line_.get(), &kMessage, sizeof kMessage, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof kMessage);
  if (!told) ::kill(pid_, SIGKILL);  // the guardian no longer reads: somebody killed it
  line_.reset();
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void Guardian::protect(pid_t group) {
  // If the guardian was killed, the message is lost; the kernel's parent-death signal still protects the ranks.
  [[maybe_unused]] const auto written = ::send(line_.get(), &group, sizeof group, MSG_NOSIGNAL);
}

}  // namespace reigen::launch
