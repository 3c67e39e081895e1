// A small process that kills a job's processes when the launcher dies without a chance to do so (kill -9, out of
// memory).
#pragma once

#include <sys/types.h>

#include <string>

#include "reigen/base/unique_fd.h"

namespace reigen::launch {

// The guardian has a session of its own, so that Ctrl-C does not reach it, and reads from a socket whose other end only
// the launcher holds: when the launcher has ended, the guardian reads the end of the stream. It then kills every
// process group that protect() named, and every process that has the job's identity in its environment, whatever its
// group.
class Guardian {
 public:
  // `identity` is NAME=value, found in the environment of all processes of the job. Make the guardian before any thread
  // is started, because it is forked.
  explicit Guardian(const std::string& identity);
  ~Guardian();                         // dismisses it: it kills nothing and has ended when this returns
  Guardian(const Guardian&) = delete;  // owns a socket and a process
  Guardian& operator=(const Guardian&) = delete;

  void protect(pid_t group);
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
  UniqueFd line_;
};

}  // namespace reigen::launch
