// Sets the number of threads with which LibTorch computes in this rank.
//
// By default LibTorch uses every processor on which the process may run. So without share_cores() the ranks of one
// machine compete for the processors, and become 12 to 33 times slower. data_parallel(), DistributedOptimizer and the
// recipes (the trainings of `reigen train`) call share_cores(). If a program uses none of these three, it must
// call share_cores() itself, after init():
//
//   auto world = reigen::init();
//   reigen::share_cores(world);
//
// Thread rule: call it from the thread that computes. LibTorch has one number of threads for the whole process.
#pragma once

#include "reigen/comm/communicator.h"

namespace reigen::tensor {

// If neither OMP_NUM_THREADS nor MKL_NUM_THREADS is set, share_cores() lowers LibTorch's default number of threads to
// this rank's share of the processors. docs/threads.md says how the share follows from the machine and its CPU quotas.
// The processors are divided among all ranks of the job on this machine, even if the group `ranks` contains only some
// of them. All ranks of the group use the smallest of their shares, because ranks with different numbers of threads
// would round differently. If the program set another number of threads than LibTorch's default by
// at::set_num_threads(), this number does not change. If one of the two variables is set, ranks that are threads of one
// process divide the variable's number among themselves. If `threads` is not 0, this rank computes with `threads`
// threads, and none of the rules above applies. A line of the log reports each change. If all ranks of the machine
// together have more threads than the machine has processors, the first rank of the machine logs one warning.
// Collective: one all_reduce of 8 bytes. Throws the errors of Communicator::all_reduce().
void share_cores(Communicator ranks, int threads = 0);

}  // namespace reigen::tensor

namespace reigen {
using tensor::share_cores;
}  // namespace reigen
