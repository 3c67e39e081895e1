#include "parallel/strategies/average.h"

#include <optional>

#include "reigen/comm/call_group.h"
#include "reigen/tensor/data_type.h"

namespace reigen::parallel {

comm::CallOptions beside_backward(const Communicator& world, const std::string& tag) {
  // Through shared memory a call is work for a core, which a thread would take from backward. Over a network most of it
  // is waiting, and what is left to hooks waits for the next one.
  const bool computes = world.shares_memory();
  return {.async = true, .progress = computes ? comm::Progress::kCaller : comm::Progress::kThread, .tag = tag};
}

Work begin_average(Communicator& world, const std::vector<at::Tensor>& tensors, const std::string& tag) {
  const comm::CallOptions options = beside_backward(world, tag);
  std::optional<CallGroup> group;
  if (tensors.size() != 1) group.emplace(world);
  Work work;
  for (const at::Tensor& tensor : tensors) {
    void* data = tensor.mutable_data_ptr();
    work = world.all_reduce(data, data, static_cast<std::size_t>(tensor.numel()),
                            tensor::to_data_type(tensor.scalar_type()), ReduceOp::kAvg, options);
  }
  return group ? group->run(options) : work;
}

std::uint64_t bytes_of(const std::vector<at::Tensor>& tensors) {
  std::uint64_t bytes = 0;
  for (const at::Tensor& tensor : tensors) bytes += tensor.nbytes();
  return bytes;
}

}  // namespace reigen::parallel
