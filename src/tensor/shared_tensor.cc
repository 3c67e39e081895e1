#include "tensor/shared_tensor.h"

#include <ATen/ATen.h>

#include <memory>
#include <utility>

namespace reigen::tensor {

at::Tensor shared_tensor(Communicator& world, std::int64_t count, at::ScalarType type) {
  std::shared_ptr<void> memory = world.allocate(static_cast<std::size_t>(count) * c10::elementSize(type));
  void* data = memory.get();
  return at::from_blob(
      data, {count}, [owner = std::move(memory)](void*) mutable { owner.reset(); }, at::TensorOptions().dtype(type));
}

void ensure_shared(at::Tensor& tensor, Communicator& world, std::int64_t count, at::ScalarType type) {
  if (tensor.defined() && tensor.numel() == count && tensor.scalar_type() == type) return;
  tensor = shared_tensor(world, count, type);
}

}  // namespace reigen::tensor
