#include "train/stop.h"

#include <signal.h>
#include <time.h>

#include <atomic>

namespace reigen::train {

namespace {

// A signal handler can reach nothing but a global.
std::atomic<bool> g_stop{false};
static_assert(std::atomic<bool>::is_always_lock_free);

std::atomic<long> g_first{0};  // seconds

// A launcher and the session's end may both send the first signal. One that comes later is from somebody who will not
// wait.
void on_signal(int signal) {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  const long seconds = static_cast<long>(now.tv_sec);
  if (!g_stop.exchange(true)) {
    g_first.store(seconds);
  } else if (seconds - g_first.load() > 2) {
    ::signal(signal, SIG_DFL);
    ::raise(signal);
  }
}

}  // namespace

void install_stop_handlers() {
  struct sigaction action = {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  ::sigemptyset(&action.sa_mask);
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
  ::signal(SIGPIPE, SIG_IGN);  // who reads the output may go away: training goes on
}

bool stop_requested() { return g_stop.load(); }

}  // namespace reigen::train
