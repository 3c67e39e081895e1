// A small process that kills a job's processes when the launcher dies without a word (kill -9, out of memory).
#pragma once

#include <sys/types.h>

#include <string>

#include "reigen/base/unique_fd.h"

namespace reigen::launch {

// The guardian has a session of its own (Ctrl-C passes it by) and reads from a socket whose other end only the launcher
// holds: the end of the line is the launcher's end. It then kills every group it was told of, and every process that
// carries the job's identity in its environment, wherever that has moved to.
class Guardian {
 public:
  // `identity` is NAME=value, found in the environment of all processes of the job. Make it before any thread.
  explicit Guardian(const std::string& identity);
  ~Guardian();                         // dismisses it: it kills nothing and is gone afterwards
  Guardian(const Guardian&) = delete;  // one line, one process
  Guardian& operator=(const Guardian&) = delete;

  void protect(pid_t group);
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
  UniqueFd line_;
};

}  // namespace reigen::launch
