// What the launcher that started this process says about it: its rank, the number of ranks, and where ranks meet.
#pragma once

#include <chrono>
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
  bool knows_local_rank = false;  // false: local_rank is 0, on every rank that was told only its rank
  int local_world_size = 1;
  int node_rank = 0;
  bool one_host = false;            // the launcher says that all ranks are on this machine
  std::string source = "none";      // launcher that was found: reigen, torchrun, Open MPI, MPICH, Slurm, none; printed
  std::string master_address = {};  // where rank 0 (or the launcher) can be reached
  std::uint16_t master_port = 0;    // where rank 0 serves the store; 0: no port was given, and none is needed
  std::string port_origin = {};     // which variable or rule gave that port, in words
  bool agent_store = false;         // torchrun's agent serves a PyTorch TCPStore at master_port
  bool on_first_node = false;       // Slurm runs this rank on the node that master_address names
  std::string store = {};           // tcp://host:port when the launcher serves the store, else empty: rank 0 serves it
  std::string job = {};             // identity that all ranks of this job have and no other process has
};

// Reads the environment variables of the launcher. The first of these that is found counts: reigen run, torchrun, Open
// MPI, MPICH (PMI), Slurm, none (one rank). mpirun inside a Slurm allocation therefore wins over Slurm; Slurm counts
// only inside a step that srun started, not in the batch script itself. The port is MASTER_PORT if it is set; no port
// where the launcher says that all ranks are on this machine; else the first of SLURM_STEP_RESV_PORTS, or 20000 +
// hash(job, user) % 9000, which lies below the ports that a kernel picks by itself. If the user sets REIGEN_JOB, it
// becomes part of the job's identity. Throws InvalidArgument when variables are missing, are not numbers, are out of
// range or contradict each other; the text names them.
Environment detect_environment();

// The job's store. If the launcher serves it, every rank connects to the launcher; else rank 0 serves it and the other
// ranks connect to rank 0. The server lives as long as the store that rank 0 got from this call. A job of one rank
// without a launcher's store gets an in-process store. Where rank 0 listens, and where the other ranks look for it,
// follows from facts that all ranks were told alike (docs/decisions/0026-how-ranks-meet.md):
//   all ranks on this machine, no port   a socket of this machine that is named after the job
//   torchrun's agent                     a port that the kernel picks, told through the agent's store
//   else                                 master_port, at the addresses of rank 0's machine that master_address can mean
// A server that gives no sign of life for `heartbeat_timeout` counts as lost. Throws Timeout, with what the last
// attempt met, when rank 0 cannot be reached before the deadline; BackendError when the port is taken (69) or another
// job or version answers there (76).
std::shared_ptr<store::Store> join_job(const Environment& environment, const Deadline& deadline,
                                       std::chrono::milliseconds heartbeat_timeout = std::chrono::seconds(10));

}  // namespace reigen::launch
