#include "tensor/calls.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include "tensor/device_memory/device_memory.h"
#include "tensor/native_stream/native_stream.h"

namespace reigen::tensor {

Stream current_stream(const at::Device& device) {
  if (device.is_cpu()) return {};
  const c10::Stream current = c10::impl::VirtualGuardImpl(c10::DeviceType::CUDA).getStream(device);
  return {.device = Device::cuda(device.index()), .handle = native_handle(current)};
}

Stream stream_of(const at::Tensor& tensor) {
  if (tensor.device().is_cuda()) lend_kept_memory();
  return current_stream(tensor.device());
}

void finish_stream_of(const at::Device& gpu) {
  const c10::impl::VirtualGuardImpl gpus(c10::DeviceType::CUDA);
  gpus.synchronizeStream(gpus.getStream(gpu));
}

void finish_stream_of(const at::Tensor& tensor) { finish_stream_of(tensor.device()); }

void wait_for(const Work& work, const at::Tensor& tensor) {
  if (tensor.device().is_cpu()) return work.wait();
  work.wait_on(stream_of(tensor));
}

void run_calls(const Communicator& world, const comm::CallList& calls, const at::Tensor& tensor) {
  if (tensor.device().is_cpu()) return world.run(calls);
  wait_for(world.start(calls), tensor);
}

}  // namespace reigen::tensor
