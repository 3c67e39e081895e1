// Runs collective calls on the memory of tensors.
//
// Tensors of the host: the calls block, as Communicator's do. Tensors of a GPU: the calls begin after the work that is
// on LibTorch's current stream of the GPU, and work that is put on this stream from now on runs after the calls. The
// host waits only until the calls are on the device. LibTorch gives memory that was used on the stream to later work of
// the same stream alone, so the tensors of a call may be dropped at once.
// Thread rule: as Communicator's.
#pragma once

#include <ATen/core/Tensor.h>

#include "reigen/comm/call_list.h"
#include "reigen/comm/communicator.h"

namespace reigen::tensor {

// CallOptions::after for a call on the memory of `tensor`: LibTorch's current stream of its device, which is the CPU
// or a GPU.
Stream stream_of(const at::Tensor& tensor);

// Runs the calls, all of which are on memory of the same device as `tensor`.
void run_calls(const Communicator& world, const comm::CallList& calls, const at::Tensor& tensor);

}  // namespace reigen::tensor
