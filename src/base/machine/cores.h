// The number of processors that the ranks of a machine have, and the number of threads that each rank may compute with.
// This is the only place that computes them, for the launcher, for LibTorch's threads, and for the decision whether a
// waiting rank may spin.
//
// A process may use the processors that it is bound to (taskset, srun, mpirun, a container's cpuset). The quotas of its
// control groups limit its time on these processors (docker --cpus, limits of Kubernetes; versions 1 and 2; its own
// group and the groups above it). Slurm limits the number of processors (SLURM_CPUS_ON_NODE for all tasks of a node,
// SLURM_CPUS_PER_TASK for each task).
//
// Each processor is shared evenly among the ranks that may run on it, and each quota among the ranks in its group. So
// ranks that a launcher bound to processors of their own keep all of them, ranks that it bound to the same socket share
// that socket, and unbound ranks share the machine. The kernel reports the binding of every process. So ranks need not
// ask each other, and a rank does not guess the binding of other ranks from its own. Ranks of this machine whose
// processes this process cannot see (in other containers) are an exception: they are assumed to be bound as this
// process is.
//
// For threads a quota is rounded up (1.5 means two threads). For spinning the exact quota counts, because a spinning
// rank must not use up the time that other ranks need.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/machine/control_groups.h"
#include "base/machine/core_share.h"

namespace reigen::base {

using CpuMask = std::vector<bool>;  // whether a process may run on each processor, by the processor's number

struct CpuQuota {
  double cores = 0;
  std::string file = {};
  ControlGroup group = {};
};

// The processors that this process may use, and the limits on their time.
struct Cores {
  CpuMask mask = {};
  int online = 1;                     // processors of the machine
  std::vector<CpuQuota> quotas = {};  // of the control groups that have a quota
  int on_node = 0;                    // processors that Slurm gives all tasks of this machine; 0: not known
  int per_task = 0;                   // processors that Slurm gives this task; 0: not known
};

// `root` is put before /proc and /sys, for tests.
Cores find_cores(const std::string& root = {});

// The share of each of `ranks` processes or threads that this process starts. All of them are bound as this process is.
CoreShare share_cores(int ranks, const Cores& cores = find_cores());

// The process id in `ranks_here` (below) of a rank whose process this process cannot see, for example because it is in
// another container of this machine.
inline constexpr pid_t kUnseen = 0;

// The share of a rank of this process. `ranks_here`: the process of each rank on this machine, in the order of the
// ranks; a process with several ranks is there once for each of them. `rank`: the rank's position in that list.
CoreShare share_cores(const std::vector<pid_t>& ranks_here, std::size_t rank, const std::string& root = {});

// The same share, computed from given values. `masks`: of all ranks on this machine. `in_quota`: for each quota, the
// number of ranks in its group. `in_this_process`: the number of ranks in this process.
CoreShare share_cores(const Cores& cores, const std::vector<CpuMask>& masks, const std::vector<int>& in_quota,
                      int in_this_process);

// Whether each thread of this machine's ranks (`ranks` ranks with `threads` threads each) can have its own processor.
// For callers that do not know the processes of the other ranks yet.
bool have_cores(int ranks, int threads = 1);

// Whether each of a rank's `threads` threads can have its own processor. `share`: the rank's share.
bool have_cores(const CoreShare& share, int threads);

// Whether `threads` is a number of threads that libraries take by default: one for each processor that this process is
// bound to, or for each processor of the machine, or for each core that this process is bound to.
bool is_default_count(const Cores& cores, int threads, const std::string& root = {});

// The number of threads in OMP_NUM_THREADS, else in MKL_NUM_THREADS; 0 if neither is set. This number replaces the one
// that Reigen would compute.
int threads_by_environment();

// "2 ranks x 4 threads share 2 processors: each gets a part of the speed"; empty if there are enough processors.
std::string describe_shortage(const CoreShare& share, int threads);

}  // namespace reigen::base
