// The facts that a launcher gives to the processes that it starts: rank, number of ranks, and the address at which the
// ranks find each other.
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
  int local_rank = 0;               // number of this rank among the ranks of this machine
  bool knows_local_rank = false;    // if false, the launcher gave no local rank, and local_rank is 0 everywhere
  int local_world_size = 1;         // number of ranks on this machine
  int node_rank = 0;                // number of this machine
  bool one_host = false;            // the launcher says that all ranks are on this machine
  std::string source = "none";      // the launcher, for messages: reigen, torchrun, Open MPI, MPICH, Slurm, none
  std::string master_address = {};  // address of rank 0 (or of the launcher)
  std::uint16_t master_port = 0;    // port at which rank 0 serves the store; 0 if no port was given or is needed
  std::string port_origin = {};     // the variable or rule that gave master_port, in words
  bool agent_store = false;         // torchrun's agent serves a PyTorch TCPStore at master_port
  bool on_first_node = false;       // Slurm runs this rank on the node that master_address names
  std::string store = {};           // tcp://host:port if the launcher serves the store; empty if rank 0 serves it
  std::string job = {};             // identity that all ranks of this job have and no other process has
};

// Reads the environment variables of the launcher. It looks for launchers in this order, and the first that it finds
// counts: reigen run, torchrun, Open MPI, MPICH (PMI), Slurm, none (one rank). So mpirun takes precedence over Slurm
// inside a Slurm allocation. Slurm counts only inside a step that srun started, not in the batch script itself. The
// port is MASTER_PORT if that variable is set. If it is not set and the launcher says that all ranks are on this
// machine, there is no port. In all other cases the port is the first of SLURM_STEP_RESV_PORTS. If that variable is not
// set, the port is 20000 + hash(job, user) % 9000, which is below the ports that a kernel picks by itself. If the user
// sets REIGEN_JOB, it becomes part of the job's identity. Throws InvalidArgument when variables are missing, are not
// numbers, are out of range or contradict each other; the text names the variables.
Environment detect_environment();

// Returns the job's store. If the launcher serves the store, every rank connects to the launcher; otherwise rank 0
// serves the store, and the other ranks connect to rank 0. The server lives as long as the store that rank 0 got from
// this call. A job of one rank without a launcher's store gets an in-process store. The address at which rank 0
// listens, and at which the other ranks look for it, follows from facts that are the same for all ranks
// (docs/decisions/0026-how-ranks-meet.md):
//   all ranks on this machine, no port   a socket of this machine that is named after the job
//   torchrun's agent                     a port that the kernel picks; rank 0 writes it to the agent's store
//   all other jobs                       master_port, at each address of rank 0's machine that master_address can mean
// A client counts the server as lost if the server sends no heartbeat for `heartbeat_timeout`. Throws Timeout, with the
// error of the last attempt, when rank 0 cannot be reached before the deadline. Throws BackendError with exit code 69
// when the port is taken, and with exit code 76 when another job or another version of Reigen answers at the port.
std::shared_ptr<store::Store> join_job(const Environment& environment, const Deadline& deadline,
                                       std::chrono::milliseconds heartbeat_timeout = std::chrono::seconds(10));

}  // namespace reigen::launch
