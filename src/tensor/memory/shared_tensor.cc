#include "tensor/memory/shared_tensor.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <sys/mman.h>

#include <memory>
#include <utility>

#include "base/check.h"

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

}  // namespace

at::Tensor shared_tensor(const Communicator& world, std::int64_t count, at::ScalarType type) {
  return tensor_over(world.allocate(bytes_of(count, type)), count, type);
}

at::Tensor common_tensor(const Communicator& world, std::int64_t count, at::ScalarType type) {
  return tensor_over(world.allocate_shared(bytes_of(count, type)), count, type);
}

at::Tensor lazy_tensor(std::int64_t count, at::ScalarType type) {
  const std::size_t bytes = bytes_of(count, type);
  if (bytes == 0) return at::empty({count}, at::TensorOptions().dtype(type));
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) base::throw_system_error("mmap", errno, __FILE__, __LINE__);
  return tensor_over(std::shared_ptr<void>(memory, [bytes](void* begin) { ::munmap(begin, bytes); }), count, type);
}

void ensure_shared(at::Tensor& tensor, const Communicator& world, std::int64_t count, at::ScalarType type) {
  if (tensor.defined() && tensor.numel() == count && tensor.scalar_type() == type) return;
  tensor = shared_tensor(world, count, type);
}

}  // namespace reigen::tensor
