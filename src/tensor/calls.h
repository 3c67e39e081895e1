// Runs collective calls on the memory of tensors.
//
// For tensors on the host, each call blocks, as calls of Communicator do. For tensors on a GPU, the calls begin after
// the work that is already on LibTorch's current stream of the GPU. Work that is put on this stream later runs after
// the calls. The host waits only until the calls are enqueued on it. The tensors of a call may be dropped at once,
// because LibTorch reuses their memory only for later work on the same stream.
// Thread rule: as for Communicator. Each rank makes the calls of a group one after the other.
#pragma once

#include <ATen/core/Tensor.h>

#include "reigen/comm/call_list.h"
#include "reigen/comm/communicator.h"

namespace reigen::tensor {

// LibTorch's current stream of the device, which is the CPU or a GPU.
Stream current_stream(const at::Device& device);

// Returns the value of CallOptions::after for a call on the memory of `tensor`: LibTorch's current stream of its
// device, which is the CPU or a GPU.
Stream stream_of(const at::Tensor& tensor);

// Waits for calls on the memory of `tensor`. If `tensor` is on a GPU, LibTorch's current stream waits, and not the
// host.
void wait_for(const Work& work, const at::Tensor& tensor);

// Waits until the current stream of the GPU, or of the tensor's GPU, has done all its work.
void finish_stream_of(const at::Device& gpu);
void finish_stream_of(const at::Tensor& tensor);

// Runs the calls, all of which are on memory of the same device as `tensor`.
void run_calls(const Communicator& world, const comm::CallList& calls, const at::Tensor& tensor);

}  // namespace reigen::tensor
