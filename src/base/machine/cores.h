// How many processors there are for the ranks of a machine, and how many threads each may compute with. The one place
// that knows: the launcher, LibTorch's threads, and whoever decides whether a waiting rank may spin ask here.
//
// What there is: the processors that a process is bound to (taskset, srun, mpirun, a container's cpuset), and no more
// time than the quotas of its control groups grant (docker --cpus, limits of Kubernetes; versions 1 and 2, the own
// group and those above it), nor than Slurm gave (SLURM_CPUS_ON_NODE to the tasks of a node, SLURM_CPUS_PER_TASK to
// each).
//
// How it is shared: each processor evenly among the ranks that may run on it, each quota among the ranks that are in
// its group. Ranks that a launcher bound to processors of their own so keep all of them, ranks that it bound to the
// same socket share this one, and ranks that nobody bound share the machine. The kernel tells to what any process is
// bound: no rank needs to be asked, and none concludes from its own binding how others are bound. Ranks of this machine
// whose processes cannot be seen (other containers) count as bound as this one is.
//
// A quota counts rounded up for threads (1.5: two) and as it is for spinning, which must not eat what others need.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/machine/control_groups.h"
#include "base/machine/core_share.h"

namespace reigen::base {

using CpuMask = std::vector<bool>;  // by the processor's number

struct CpuQuota {
  double cores = 0;
  std::string file = {};
  ControlGroup group = {};
};

// What binds this process.
struct Cores {
  CpuMask mask = {};
  int online = 1;                     // processors of the machine
  std::vector<CpuQuota> quotas = {};  // of the groups that have one
  int on_node = 0;                    // Slurm: for all tasks of this machine; 0: not said
  int per_task = 0;                   // Slurm: for this task; 0: not said
};

// `root` stands before /proc and /sys (tests).
Cores find_cores(const std::string& root = {});

// For `ranks` processes that this one starts, or as many threads of it: all of them bound as it is.
CoreShare share_cores(int ranks, const Cores& cores = find_cores());

// The process of a rank of this machine that this one cannot see, as of another container.
inline constexpr pid_t kUnseen = 0;

// For this process, which is one of `ranks_here`: the processes of this machine's ranks in the order of their ranks,
// each as often as it has ranks. `rank`: its place there.
CoreShare share_cores(const std::vector<pid_t>& ranks_here, std::size_t rank, const std::string& root = {});

// The same by what is given: masks of all ranks, and how many of them are in each quota's group.
CoreShare share_cores(const Cores& cores, const std::vector<CpuMask>& masks, const std::vector<int>& in_quota,
                      int in_this_process);

// True when each of `threads` threads of each of this machine's `ranks` ranks can have a processor of its own: for who
// does not know the other ranks' processes yet.
bool have_cores(int ranks, int threads = 1);

// The same for this rank, which knows its share.
bool have_cores(const CoreShare& share, int threads);

// True for what a library takes that asks nobody: every processor that this process is bound to, or that the machine
// has, or one of each core where a core is several.
bool is_default_count(const Cores& cores, int threads, const std::string& root = {});

// What OMP_NUM_THREADS says, else MKL_NUM_THREADS: who sets them wins. 0: nobody has.
int threads_by_environment();

// "2 ranks x 4 threads share 2 processors: each gets a part of the speed"; empty where there are enough.
std::string describe_shortage(const CoreShare& share, int threads);

}  // namespace reigen::base
