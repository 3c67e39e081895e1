// Separates the GPU work of ranks that are threads of one process and use the same GPU.
//
// LibTorch gives all threads of a process the same default stream of a GPU, and one thread for all backwards on this
// GPU. If two ranks shared them, the work of one rank would wait behind a call that waits for the other rank, and both
// would wait for ever. Therefore each rank needs a stream and a backward thread of its own:
//
//   reigen::run_threads(2, [](reigen::Communicator& world) {
//     reigen::separate_gpu_work(world);   // before the rank makes its first tensor on the GPU
//     ...
//   }, {.device = reigen::Device::cuda(0)});
//
// Tasks and recipes (the trainer) call it themselves. Ranks that are processes need not call it.
#pragma once

#include "reigen/comm/communicator.h"

namespace reigen::tensor {

// If another rank of the group is a thread of this process and uses the same GPU (Communicator::device()), the calling
// thread gets, until it ends, a current stream of its own on this GPU, and backward() called from this thread runs on a
// thread of its own. The new stream first waits for the work on the stream that was current before. Otherwise the
// function changes nothing. A second call changes nothing either.
// Tensors that the thread made on the GPU before the call belong to the old stream: LibTorch may give their memory to
// another thread when they are freed. So call it before the first of them is made.
// Thread rule: call it from the thread that calls backward().
// Collective: one all_gather of 16 bytes of each rank. Throws the errors of Communicator::all_gather(), and
// BackendError with exit code 69 if LibTorch's part for GPUs cannot be opened.
void separate_gpu_work(const Communicator& ranks);

}  // namespace reigen::tensor

namespace reigen {
using tensor::separate_gpu_work;
}  // namespace reigen
