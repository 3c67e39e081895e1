// Finds the flight records of the jobs that run on this machine, through /proc. It only reads; the processes of the
// jobs are not disturbed.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "flight/read.h"

namespace reigen::flight {

struct LiveJob {
  pid_t pid = 0;                     // the launcher, or if there is none, the first process of the job
  std::string command = {};          // the command line of `pid`, shortened
  std::vector<ReadRank> ranks = {};  // in the order of their ranks
};

// The jobs of this user, in the order of `pid`.
std::vector<LiveJob> find_jobs();

// The job that the process has started or belongs to. Throws InvalidArgument with exit code 66 if there is no such
// process, or if neither the process nor any of its descendants has a record. Throws IoError with exit code 77 if the
// process belongs to another user.
LiveJob find_job(pid_t pid);

}  // namespace reigen::flight
