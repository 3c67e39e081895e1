// A stand-in for NCCL on the stand-in for CUDA: it defines the functions that src/comm/nccl/ calls. Ranks are threads
// of one process, or processes.
//
// Where NCCL leaves a choice, the stand-in is strict:
// - A call that is enqueued on a communicator is on the stream only after ncclCommGetAsyncError has returned
//   ncclSuccess, which it does not return at first. Until then another call is refused.
// - Every send waits for its recv. Calls of one communicator that differ between the ranks never end.
// - Sums are added beginning with the last rank.
// It cannot show that NCCL itself works, nor how fast it is.
// Thread rule: any thread.
#pragma once

#include "fakes/cuda/stand_in.h"

namespace reigen::testing::stand_in {

// False: from now on no communicator can be formed. True: communicators can be formed again.
void connect(bool works);

// From now on, NCCL reports an error to a rank with this device while it connects ranks. -1: to no rank.
void fail_to_connect(int device);

}  // namespace reigen::testing::stand_in
