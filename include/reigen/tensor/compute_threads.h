// How many threads LibTorch computes with in this rank.
//
// LibTorch takes every processor that a process may run on; ranks of one machine to which nobody gave a number take
// them all from each other, which costs 12 to 33 times the time. data_parallel(), DistributedOptimizer and the recipes
// call this; a program that uses none of them does it behind init():
//
//   auto world = reigen::init();
//   reigen::share_cores(world);
//
// Thread rule: the thread that computes; LibTorch's number belongs to the process.
#pragma once

#include "reigen/comm/communicator.h"

namespace reigen::tensor {

// Where neither OMP_NUM_THREADS nor MKL_NUM_THREADS is set, what LibTorch takes by itself falls to this rank's share of
// its machine's processors and quotas (docs/threads.md), and to no more than any other rank of the group takes: unlike
// numbers would round unlike. One line of the log says so. The share is beside all ranks of the job there, also where
// `ranks` was split from them. A number of at::set_num_threads() stays, unless it is what LibTorch takes by itself.
// Ranks that are threads of one process share what the variables say. `threads`: the caller's choice, which wins; 0:
// none. A warning, once, of the machine's first rank where all of them want more than there is. Collective: one
// all_reduce of 8 bytes. Throws as that does.
void share_cores(Communicator ranks, int threads = 0);

}  // namespace reigen::tensor

namespace reigen {
using tensor::share_cores;
}  // namespace reigen
