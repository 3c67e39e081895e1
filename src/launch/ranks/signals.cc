#include "launch/ranks/signals.h"

#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <cstring>

#include "base/check.h"

namespace reigen::launch {

namespace {

constexpr std::array kHeard = {SIGINT, SIGTERM, SIGQUIT, SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU, SIGTSTP, SIGCONT};

bool is_ignored(int signal) {
  struct sigaction action {};
  ::sigaction(signal, nullptr, &action);
  return action.sa_handler == SIG_IGN;
}

void replace_action(int signal, void (*handler)(int), struct sigaction* previous) {
  struct sigaction action {};
  action.sa_handler = handler;
  REIGEN_SYSCALL(::sigaction(signal, &action, previous));
}

}  // namespace

std::string signal_name(int signal) {
  const char* name = ::sigabbrev_np(signal);
  return name != nullptr ? std::string("SIG") + name : fmt::format("signal {}", signal);
}

SignalScope::SignalScope() {
  sigemptyset(&blocked_);
  for (const int signal : kHeard) {
    if (signal == SIGINT || signal == SIGTERM || !is_ignored(signal)) sigaddset(&blocked_, signal);
  }
  descriptor_ = UniqueFd(REIGEN_SYSCALL(::signalfd(-1, &blocked_, SFD_CLOEXEC | SFD_NONBLOCK)));
  ::pthread_sigmask(SIG_BLOCK, &blocked_, &previous_mask_);
  replace_action(SIGPIPE, SIG_IGN, &previous_pipe_);
  replace_action(SIGCHLD, SIG_DFL, &previous_child_);
}

SignalScope::~SignalScope() {
  // A signal that came after the job's end is dropped, because it must not end the caller when it is unblocked.
  while (next() != 0) {
  }
  ::sigaction(SIGPIPE, &previous_pipe_, nullptr);
  ::sigaction(SIGCHLD, &previous_child_, nullptr);
  ::pthread_sigmask(SIG_SETMASK, &previous_mask_, nullptr);
}

int SignalScope::next() {
  signalfd_siginfo info{};
  for (;;) {
    const ssize_t got = ::read(descriptor_.get(), &info, sizeof info);
    if (got == static_cast<ssize_t>(sizeof info)) return static_cast<int>(info.ssi_signo);
    if (got < 0 && errno == EINTR) continue;
    return 0;
  }
}

}  // namespace reigen::launch
