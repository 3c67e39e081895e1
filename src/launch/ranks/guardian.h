// A small process that kills a job's processes when the launcher dies without a chance to do so (kill -9, out of
// memory).
#pragma once

#include <sys/types.h>

#include <string>

#include "reigen/base/unique_fd.h"

namespace reigen::launch {

// The guardian has a session of its own, so that Ctrl-C does not reach it. It reads from a socket whose other end only
// the launcher holds. When the launcher has ended, the guardian reads the end of the stream. It then kills every
// process group that protect() named, and every process that has the job's identity in its environment, whatever
// process group it is in.
class Guardian {
 public:
  // `identity`: the text NAME=value that is in the environment of all processes of the job. Make the guardian before
  // any thread is started, because the constructor forks.
  explicit Guardian(const std::string& identity);
  ~Guardian();                         // ends the guardian process, which then kills nothing
  Guardian(const Guardian&) = delete;  // owns a socket and a process
  Guardian& operator=(const Guardian&) = delete;

  void protect(pid_t group);
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
  UniqueFd line_;
};

}  // namespace reigen::launch
