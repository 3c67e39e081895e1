// The number of processors that the ranks of a machine have, and the number of threads that each rank may compute with.
// Only this file computes these numbers. The launcher uses them, and so do the setting of LibTorch's threads and the
// decision whether a waiting rank may spin.
//
// A process may use the processors that it is bound to (taskset, srun, mpirun, a container's cpuset). CPU quotas limit
// the process's time on these processors (docker --cpus, limits of Kubernetes). These are the quotas of the process's
// control group and of all groups above this group, in version 1 and in version 2 of control groups. Slurm limits the
// number of processors (SLURM_CPUS_ON_NODE for all tasks of a node, SLURM_CPUS_PER_TASK for each task).
//
// Each processor is shared evenly among the ranks that may run on it, and each quota among the ranks in its group. So a
// rank that a launcher bound to processors of its own keeps all of these processors. Ranks that a launcher bound to the
// same socket share this socket, and unbound ranks share the machine. Each rank reads the binding of every other rank's
// process from the kernel, so the ranks need not ask each other. A rank cannot see the processes of ranks in other
// containers. For these processes it assumes the binding of its own process.
//
// The number of threads comes from the quota rounded up (a quota of 1.5 allows two threads). The decision to spin uses
// the exact quota, because a spinning rank must not use up the time that other ranks need.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/machine/control_groups.h"
#include "base/machine/core_share.h"

namespace reigen::base {

using CpuMask = std::vector<bool>;  // element i says whether a process may run on processor i

struct CpuQuota {
  double cores = 0;
  std::string file = {};
  ControlGroup group = {};
};

// The processors that this process may use, and the limits on their time.
struct Cores {
  CpuMask mask = {};
  int online = 1;                     // processors of the machine
  std::vector<CpuQuota> quotas = {};  // one for each control group that has a quota
  int on_node = 0;                    // processors that Slurm gives all tasks of this machine; 0 if not known
  int per_task = 0;                   // processors that Slurm gives this task; 0 if not known
};

// `root` is put before /proc and /sys, for tests.
Cores find_cores(const std::string& root = {});

// The share of each of `ranks` processes or threads that this process starts. All of them are bound as this process is.
CoreShare share_cores(int ranks, const Cores& cores = find_cores());

// In `ranks_here` (below) this value stands for the id of a process that the calling process cannot see, for example
// because that process is in another container of this machine.
inline constexpr pid_t kUnseen = 0;

// The share of a rank of this process. `ranks_here`: the process of each rank on this machine, in the order of the
// ranks; a process with several ranks appears once for each of its ranks. `rank`: the rank's position in `ranks_here`.
CoreShare share_cores(const std::vector<pid_t>& ranks_here, std::size_t rank, const std::string& root = {});

// The same share, computed from given values. `masks`: the CPU masks of all ranks on this machine. `in_quota`: for each
// quota, the number of ranks in its group. `in_this_process`: the number of ranks in this process.
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

// The number of threads in OMP_NUM_THREADS, else in MKL_NUM_THREADS; 0 if neither is set. If one of them is set, Reigen
// takes this number and computes none.
int threads_by_environment();

// A text such as "2 ranks x 4 threads share 2 processors: each gets a part of the speed"; empty if there are enough
// processors.
std::string describe_shortage(const CoreShare& share, int threads);

}  // namespace reigen::base
