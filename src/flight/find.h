// Finds the flight records of jobs that run on this machine, through /proc. Looks only; the processes notice nothing.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "flight/read.h"

namespace reigen::flight {

struct LiveJob {
  pid_t pid = 0;                     // the launcher, or the first of the processes
  std::string command = {};          // its command line, shortened
  std::vector<ReadRank> ranks = {};  // in the order of their rank
};

// Those of this user, in the order of `pid`.
std::vector<LiveJob> find_jobs();

// The job that the process starts or belongs to. Throws InvalidArgument: no such process, none with a record in it or
// below it (66); IoError (77): another user's.
LiveJob find_job(pid_t pid);

}  // namespace reigen::flight
