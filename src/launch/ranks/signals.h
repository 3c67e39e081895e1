// Signals of the launcher, read from a descriptor instead of handled.
#pragma once

#include <csignal>
#include <string>
#include <vector>

#include "reigen/base/unique_fd.h"

namespace reigen::launch {

// "SIGKILL"; "signal 40" for those without a name.
std::string signal_name(int signal);

// While it lives: the signals that a job listens to are blocked in the calling thread (and in threads it starts) and
// read with next(); a closed output gives EPIPE instead of SIGPIPE; children can be waited for. Everything is put back
// at its end. A signal that was ignored when it began (nohup) stays ignored, except SIGINT and SIGTERM.
class SignalScope {
 public:
  SignalScope();
  ~SignalScope();
  SignalScope(const SignalScope&) = delete;  // there is one signal mask
  SignalScope& operator=(const SignalScope&) = delete;

  int descriptor() const { return descriptor_.get(); }
  int next();  // the next pending signal, 0: none
  const sigset_t& previous_mask() const { return previous_mask_; }

 private:
  UniqueFd descriptor_;
  sigset_t blocked_{};
  sigset_t previous_mask_{};
  struct sigaction previous_pipe_ {};
  struct sigaction previous_child_ {};
};

}  // namespace reigen::launch
