// Who am I: what the launcher that started this process says about rank and size.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "reigen/base/deadline.h"
#include "reigen/store/store.h"

namespace reigen::launch {

struct Environment {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;
  int local_world_size = 1;
  int node_rank = 0;
  std::string source = "none";  // reigen, torchrun, Open MPI, MPICH, Slurm, none: printed, so that a user sees who won
  std::string master_address = {};  // where rank 0 (or the launcher) can be reached
  std::uint16_t master_port = 0;    // the first port that rank 0 tries for the store; 0: one rank, none needed
  std::string store = {};           // tcp://host:port when the launcher serves the store, else empty: rank 0 serves it
  std::string job = {};             // identity that all ranks of this job and nobody else have
};

// Order: reigen run, torchrun, Open MPI, MPICH (PMI), Slurm, alone. mpirun inside a Slurm allocation wins over Slurm;
// Slurm counts only inside a step that srun started, not in the batch script itself. Ports: MASTER_PORT if set (the
// next one when torchrun's agent owns it), else 20000 + hash(job, user) % 20000. A REIGEN_JOB that the user sets
// becomes part of the job's identity. Throws InvalidArgument when variables are missing, not numbers, out of range or
// contradict each other, naming them.
Environment detect_environment();

// The job's store: connects to the launcher's, or serves one from rank 0 and connects the others. The server lives as
// long as the returned store (on rank 0). Alone: an in-process store. When rank 0 finds its port taken it goes on to
// the next, eight in all, and the others look at the same ones: the job's identity tells which server is theirs. Throws
// Timeout when rank 0 does not come, BackendError (69) when none of its ports is free.
std::shared_ptr<store::Store> join_job(const Environment& environment, const Deadline& deadline);

}  // namespace reigen::launch
