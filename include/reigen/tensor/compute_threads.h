// Sets the number of threads with which LibTorch computes in this rank.
//
// By default LibTorch uses every processor on which the process may run. Then the ranks of one machine take the
// processors from each other, and become 12 to 33 times slower. data_parallel(), DistributedOptimizer and the recipes
// call share_cores(); a program that uses none of them calls it after init():
//
//   auto world = reigen::init();
//   reigen::share_cores(world);
//
// Thread rule: call it from the thread that computes; LibTorch's number of threads belongs to the process.
#pragma once

#include "reigen/comm/communicator.h"

namespace reigen::tensor {

// If neither OMP_NUM_THREADS nor MKL_NUM_THREADS is set, share_cores() lowers LibTorch's default number of threads to
// this rank's share of the processors that its machine and its CPU quotas allow (docs/threads.md). All ranks of the
// group use the smallest share of any of them, because ranks with different numbers of threads would round differently.
// A line of the log reports the change. The share counts all ranks of the job on this machine, even if `ranks` is only
// a part of them. A number of threads that the program set by at::set_num_threads() is kept, unless it is also
// LibTorch's default. If one of the variables is set, ranks that are threads of one process divide the variable's
// number among themselves. If `threads` is not 0, this rank computes with `threads` threads, and none of the rules
// above applies. If all ranks of the machine together have more threads than the machine has processors, the first rank
// of the machine warns once. Collective: one all_reduce of 8 bytes. Throws as an all_reduce does.
void share_cores(Communicator ranks, int threads = 0);

}  // namespace reigen::tensor

namespace reigen {
using tensor::share_cores;
}  // namespace reigen
