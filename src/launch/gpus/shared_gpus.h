// A daemon of NVIDIA's Multi-Process Service (MPS) for a job whose ranks share GPUs. Without it only one process's
// kernels run on a GPU at any moment, and a switch between two processes takes some 75 us.
// Source: NVIDIA, Multi-Process Service, https://docs.nvidia.com/deploy/mps
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "reigen/launch/job.h"

namespace reigen::launch {

// The number of GPUs that CUDA_VISIBLE_DEVICES lists. If the variable is not set, the number of GPUs that the driver
// has in `driver_folder`.
int visible_gpus(const std::string& driver_folder = "/proc/driver/nvidia/gpus");

// While it lives, the job's daemon runs, if `share` asks for one:
//   kOff    there is none
//   kAuto   there is one if more ranks than visible GPUs are started here, the daemon's program is in PATH, and no
//   other
//           daemon is there. If it cannot be started, a warning is printed
//   kOn     there is one. Throws BackendError (exit code 69) if no GPU is visible, the program is missing or the daemon
//           cannot be started
// Where CUDA_MPS_PIPE_DIRECTORY is set or CUDA's standard place for daemons has one, the ranks use this daemon.
//
// The daemon has a folder of its own for its sockets, so only processes with variables() use it. It has the job's
// identity in its environment, so the job's guardian kills it if the launcher dies. Make this object before any thread
// is started, and before the launcher adopts orphans: the daemon has no parent here.
class SharedGpus {
 public:
  // `identity`: the text NAME=value that is in the environment of all processes of the job.
  SharedGpus(ShareGpus share, int ranks, std::string identity);
  ~SharedGpus();
  SharedGpus(const SharedGpus&) = delete;  // owns processes and a folder
  SharedGpus& operator=(const SharedGpus&) = delete;

  // The variables by which a rank finds the daemon; empty if there is none.
  std::vector<std::pair<std::string, std::string>> variables() const;
  // Ends the daemon within 6 s, after the ranks have ended.
  void end();

 private:
  void start(const std::string& program);

  std::string identity_;
  std::string program_;
  std::string folder_;  // empty if there is no daemon
};

}  // namespace reigen::launch
