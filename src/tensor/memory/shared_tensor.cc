#include "tensor/memory/shared_tensor.h"

#include <ATen/ATen.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/accumulate.h>
#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <exception>
#include <memory>
#include <utility>

#include "base/check.h"
#include "comm/self/self_backend.h"
#include "device/cuda.h"
#include "tensor/hooks/thread_engine.h"

namespace reigen::tensor {

namespace {

at::Tensor tensor_over(std::shared_ptr<void> memory, std::int64_t count, at::ScalarType type) {
  void* data = memory.get();
  return at::from_blob(
      data, {count}, [owner = std::move(memory)](void*) mutable { owner.reset(); }, at::TensorOptions().dtype(type));
}

std::size_t bytes_of(std::int64_t count, at::ScalarType type) {
  return static_cast<std::size_t>(count) * c10::elementSize(type);
}

// A tensor of the GPU over memory that can be used by others as soon as it is freed: the group may give it to a call on
// another stream. So all work on the memory must be done before it is freed. `first`: the address of element 0.
// If ranks are threads that share a GPU, work of another rank may wait for this rank, so this rank waits only for its
// own stream: calls of the group keep the memory that they use.
at::Tensor tensor_on_gpu(std::shared_ptr<void> memory, void* first, std::int64_t count, at::ScalarType type,
                         const at::Device& gpu) {
  const auto free = [owner = std::move(memory), gpu](void*) mutable {
    try {
      const c10::impl::VirtualGuardImpl gpus(c10::DeviceType::CUDA);
      if (has_own_engine())
        gpus.synchronizeStream(gpus.getStream(gpu));
      else
        gpus.synchronizeDevice(gpu.index());
    } catch (const std::exception&) {
      // The GPU has failed: nothing on it will be used any more.
    }
    owner.reset();
  };
  return at::for_blob(first, {count})
      .deleter(free)
      .options(at::TensorOptions().dtype(type).device(gpu))
      .target_device(gpu)
      .make_tensor();
}

}  // namespace

at::Tensor shared_tensor(const Communicator& world, std::int64_t count, at::ScalarType type, const at::Device& device) {
  if (device.is_cpu()) return tensor_over(world.allocate(bytes_of(count, type)), count, type);
  std::shared_ptr<void> memory = world.allocate(bytes_of(count, type), Device::cuda(device.index()));
  void* const first = memory.get();
  return tensor_on_gpu(std::move(memory), first, count, type, device);
}

at::Tensor pinned_part_of_tensor(std::int64_t count, at::ScalarType type, std::int64_t first, std::int64_t last,
                                 const at::Device& gpu) {
  const std::size_t bytes = bytes_of(std::max<std::int64_t>(last - first, 1), type);
  const device::OnDevice on(gpu.index());
  std::shared_ptr<void> memory = device::allocate_pinned(bytes);
  std::memset(memory.get(), 0, bytes);
  auto* const begin = static_cast<std::byte*>(memory.get()) - bytes_of(first, type);
  return tensor_on_gpu(std::move(memory), begin, count, type, gpu);
}

at::Tensor part_of_tensor(std::int64_t count, at::ScalarType type, std::int64_t first, std::int64_t last,
                          const at::Device& gpu) {
  const auto options = at::TensorOptions().dtype(type).device(gpu);
  if (first == 0 && last == count) return at::zeros({count}, options);
  at::Tensor held = at::zeros({std::max<std::int64_t>(last - first, 1)}, options);
  auto* const begin = static_cast<std::byte*>(held.mutable_data_ptr()) - bytes_of(first, type);
  return at::for_blob(begin, {count})
      .deleter([owner = std::move(held)](void*) mutable { owner.reset(); })
      .options(options)
      .target_device(gpu)
      .make_tensor();
}

at::Tensor tensor_over(void* memory, std::int64_t count, at::ScalarType type, const at::Device& device) {
  return at::for_blob(memory, {count})
      .options(at::TensorOptions().dtype(type).device(device))
      .target_device(device)
      .make_tensor();
}

at::Tensor common_tensor(const Communicator& world, std::int64_t count, at::ScalarType type) {
  return tensor_over(world.allocate_shared(bytes_of(count, type)), count, type);
}

at::Tensor lazy_tensor(std::int64_t count, at::ScalarType type, bool of_part) {
  const std::size_t bytes = bytes_of(count, type);
  if (!of_part) return tensor_over(comm::self::allocate(bytes), count, type);
  if (bytes == 0) return at::empty({count}, at::TensorOptions().dtype(type));
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) base::throw_system_error("mmap", errno, __FILE__, __LINE__);
  return tensor_over(std::shared_ptr<void>(memory, [bytes](void* begin) { ::munmap(begin, bytes); }), count, type);
}

at::Tensor brief_tensor(at::IntArrayRef shape, const at::TensorOptions& options) {
  if (!options.device().is_cpu()) return at::empty(shape, options);
  return lazy_tensor(c10::multiply_integers(shape), c10::typeMetaToScalarType(options.dtype())).view(shape);
}

void ensure_shared(at::Tensor& tensor, const Communicator& world, std::int64_t count, at::ScalarType type) {
  if (tensor.defined() && tensor.numel() == count && tensor.scalar_type() == type) return;
  tensor = shared_tensor(world, count, type);
}

}  // namespace reigen::tensor
