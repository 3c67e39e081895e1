// Who am I: what the launcher that started this process says about rank and size.
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
  bool knows_local_rank = false;  // else 0 on every rank that was told no more than its number
  int local_world_size = 1;
  int node_rank = 0;
  bool one_host = false;        // the launcher says that all ranks are on this machine
  std::string source = "none";  // reigen, torchrun, Open MPI, MPICH, Slurm, none: printed, so that a user sees who won
  std::string master_address = {};  // where rank 0 (or the launcher) can be reached
  std::uint16_t master_port = 0;    // where rank 0 serves the store; 0: none was given, and none is needed
  std::string port_origin = {};     // who gave that port, in words
  bool agent_store = false;         // torchrun's agent serves a store of PyTorch's at master_port
  bool on_first_node = false;       // Slurm runs this rank on the node that master_address names
  std::string store = {};           // tcp://host:port when the launcher serves the store, else empty: rank 0 serves it
  std::string job = {};             // identity that all ranks of this job and nobody else have
};

// Order: reigen run, torchrun, Open MPI, MPICH (PMI), Slurm, alone. mpirun inside a Slurm allocation wins over Slurm;
// Slurm counts only inside a step that srun started, not in the batch script itself. Ports: MASTER_PORT if set; none
// where the launcher says that all ranks are on this machine; else the first of SLURM_STEP_RESV_PORTS, or
// 20000 + hash(job, user) % 9000, which lies below the ports that a kernel picks by itself. A REIGEN_JOB that the user
// sets becomes part of the job's identity. Throws InvalidArgument when variables are missing, not numbers, out of range
// or contradict each other, naming them.
Environment detect_environment();

// The job's store: connects to the launcher's, or serves one from rank 0 and connects the others. The server lives as
// long as the returned store (on rank 0). Alone: an in-process store. Where rank 0 listens, and where the others look
// for it, follows from what all ranks were told alike (docs/decisions/0026-how-ranks-meet.md):
//   all here, no port given    a socket of this machine that is named after the job
//   torchrun's agent           a port that the kernel picks, told through the agent's store
//   else                       master_port, at the addresses of rank 0's machine that master_address can mean
// A server that gives no sign of life for `heartbeat_timeout` is lost. Throws Timeout when rank 0 does not come, with
// the first reason; BackendError (69) when the port is taken.
std::shared_ptr<store::Store> join_job(const Environment& environment, const Deadline& deadline,
                                       std::chrono::milliseconds heartbeat_timeout = std::chrono::seconds(10));

}  // namespace reigen::launch
