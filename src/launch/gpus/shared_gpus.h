// A daemon of NVIDIA's Multi-Process Service (MPS) for a job whose ranks share GPUs. Without it only one process's
// kernels run on a GPU at any moment, and a switch between two processes takes some 75 us.
// Source: NVIDIA, Multi-Process Service, https://docs.nvidia.com/deploy/mps
#pragma once

#include <string>
#include <vector>

#include "launch/ranks/process.h"
#include "reigen/launch/job.h"

namespace reigen::launch {

// The GPUs that CUDA_VISIBLE_DEVICES of the ranks lists; CUDA ends the list at the first entry that names no GPU. If
// there is no such variable, the numbers of the GPUs that the driver has in `driver_folder`.
std::vector<std::string> visible_gpus(const Variables& of_ranks,
                                      const std::string& driver_folder = "/proc/driver/nvidia/gpus");

// While it lives, the job's daemon runs, if `share` asks for one:
//   kOff    There is none.
//   kAuto   There is one if more ranks than visible GPUs are started here, at most 48 for each GPU (MPS serves no
//   more),
//           and the daemon's program is in PATH. If it cannot be started, a warning is printed.
//   kOn     There is one. Throws BackendError (exit code 69) if no GPU is visible, the program is missing or the daemon
//           cannot be started.
// If the ranks have a daemon already (base/machine/mps.h), they use it.
//
// The daemon has a folder of its own for its sockets, so only processes with variables() use it. It has the job's
// identity in its environment, so the job's guardian kills it if the launcher dies; the folder then remains. Make this
// object before the launcher adopts orphans, because the daemon leaves its parent.
class SharedGpus {
 public:
  // `of_ranks`: the environment of the ranks. `identity`: the text NAME=value that all processes of the job have in it.
  SharedGpus(ShareGpus share, int ranks, const Variables& of_ranks, std::string identity);
  ~SharedGpus();
  SharedGpus(const SharedGpus&) = delete;  // owns processes and a folder
  SharedGpus& operator=(const SharedGpus&) = delete;

  // The variables that the ranks need to find the daemon and their GPUs; empty if there is no daemon.
  const Variables& variables() const { return variables_; }
  // Ends the daemon within 7 s, after the ranks have ended.
  void end();

 private:
  void start(const std::string& program, const Variables& of_ranks, const std::vector<std::string>& gpus);

  std::string identity_;
  std::string program_;
  std::string folder_;  // empty if there is no daemon
  Variables variables_;
  std::vector<std::string> environment_;  // of the daemon
};

}  // namespace reigen::launch
