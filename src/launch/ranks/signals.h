// The launcher's signals, read from a descriptor instead of by signal handlers.
#pragma once

#include <csignal>
#include <string>
#include <vector>

#include "reigen/base/unique_fd.h"

namespace reigen::launch {

// A text such as "SIGKILL", or "signal 40" for a signal without a name.
std::string signal_name(int signal);

// While a SignalScope lives, the signals that a job listens to are blocked in the calling thread (and in threads that
// it starts) and are read with next(). Writing to a closed output gives EPIPE instead of SIGPIPE, and SIGCHLD has its
// default action, so that children can be waited for. The destructor restores everything. A signal that was ignored at
// the start (nohup) remains ignored, except SIGINT and SIGTERM.
class SignalScope {
 public:
  SignalScope();
  ~SignalScope();
  SignalScope(const SignalScope&) = delete;  // a thread has only one signal mask
  SignalScope& operator=(const SignalScope&) = delete;

  int descriptor() const { return descriptor_.get(); }
  int next();  // takes and returns the next pending signal; 0 if there is none
  const sigset_t& previous_mask() const { return previous_mask_; }

 private:
  UniqueFd descriptor_;
  sigset_t blocked_{};
  sigset_t previous_mask_{};
  struct sigaction previous_pipe_ {};
  struct sigaction previous_child_ {};
};

}  // namespace reigen::launch
