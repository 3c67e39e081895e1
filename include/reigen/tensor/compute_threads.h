// Sets how many threads LibTorch computes with in this rank.
//
// LibTorch takes every processor that a process may run on. If nobody sets a number, the ranks of one machine take all
// processors from each other, and become 12 to 33 times slower. data_parallel(), DistributedOptimizer and the recipes
// call share_cores(); a program that uses none of them calls it after init():
//
//   auto world = reigen::init();
//   reigen::share_cores(world);
//
// Thread rule: the thread that computes; LibTorch's number belongs to the process.
#pragma once

#include "reigen/comm/communicator.h"

namespace reigen::tensor {

// Where neither OMP_NUM_THREADS nor MKL_NUM_THREADS is set, it lowers the number that LibTorch takes by itself to this
// rank's share of its machine's processors and quotas (docs/threads.md), and to the least number of any rank of the
// group: ranks with different numbers of threads would round differently. One line of the log says so. The share
// counts all ranks of the job on this machine, even if `ranks` was split from them. A number that the program set by
// at::set_num_threads() stays, unless LibTorch would take the same number by itself. Ranks that are threads of one
// process divide the number in the variables. `threads`: the caller's choice, which wins; 0: no choice. If all ranks
// of the machine want more threads than there are processors, its first rank warns once. Collective: one all_reduce of
// 8 bytes. Throws as that does.
void share_cores(Communicator ranks, int threads = 0);

}  // namespace reigen::tensor

namespace reigen {
using tensor::share_cores;
}  // namespace reigen
