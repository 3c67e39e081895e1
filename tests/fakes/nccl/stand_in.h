// A stand-in for NCCL on the stand-in for CUDA: it defines the functions that src/comm/nccl/ calls. Ranks are threads
// of one process.
//
// Where NCCL leaves a choice it takes the one that forgives least:
// - What is enqueued on a communicator is on its stream only when ncclCommGetAsyncError has said ncclSuccess, which it
//   does not say at first. A call before that is refused.
// - Every send waits for its recv. Calls of one communicator that differ between the ranks never end.
// - Sums are added beginning with the last rank.
// It cannot show that NCCL does what it is asked for, nor how fast.
// Thread rule: any thread.
#pragma once

#include "fakes/cuda/stand_in.h"

namespace reigen::testing::stand_in {

// From now on no communicator comes to be, or again.
void connect(bool works);

}  // namespace reigen::testing::stand_in
