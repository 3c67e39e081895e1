#include "parallel/strategies/average.h"

#include <ATen/ATen.h>

#include "reigen/comm/call_list.h"
#include "reigen/tensor/data_type.h"
#include "tensor/calls.h"
#include "tensor/memory/shared_tensor.h"

namespace reigen::parallel {

comm::Progress beside_backward(const Communicator& world, const Device& device) {
  // A GPU computes by itself, so a thread that only starts its work takes little of a core.
  if (!device.is_cpu()) return comm::Progress::kThread;
  // In shared memory a core does the work of a call. A thread for the calls would take this core from backward. Over a
  // network a call mostly waits, so a thread for the calls takes little from backward. Without this thread only hooks
  // would advance a call, and the call would also wait for the next hook.
  return world.shares_memory() ? comm::Progress::kCaller : comm::Progress::kThread;
}

Work begin_average(const Communicator& world, const std::vector<at::Tensor>& tensors, const std::string& tag) {
  CallList calls;
  const Stream after = tensor::stream_of(tensors.front());
  for (const at::Tensor& tensor : tensors) {
    void* data = tensor.mutable_data_ptr();
    calls.all_reduce(data, data, static_cast<std::size_t>(tensor.numel()), tensor::to_data_type(tensor.scalar_type()),
                     ReduceOp::kAvg, {.tag = tag, .after = after});
  }
  return world.start(calls, beside_backward(world, after.device));
}

// On a GPU the memory is from LibTorch's allocator. If it were from the group, the host would wait for the GPU before
// it frees the memory, and hooks must not wait.
void ensure_room(at::Tensor& tensor, const Communicator& world, std::int64_t count, at::ScalarType type,
                 const at::Device& device) {
  if (device.is_cpu()) return tensor::ensure_shared(tensor, world, count, type);
  const bool fits = tensor.defined() && tensor.numel() == count;
  if (!fits) tensor = at::empty({count}, at::TensorOptions().dtype(type).device(device));
}

std::uint64_t bytes_of(const std::vector<at::Tensor>& tensors) {
  std::uint64_t bytes = 0;
  for (const at::Tensor& tensor : tensors) bytes += tensor.nbytes();
  return bytes;
}

}  // namespace reigen::parallel
