#include "tensor/memory/memory_resource.h"

#include <ATen/ATen.h>

#include "base/check.h"
#include "base/no_waiting.h"
#include "device/cuda.h"
#include "reigen/base/bytes.h"
#include "tensor/device_memory/device_memory.h"
#include "tensor/memory/disk_tensor.h"
#include "tensor/memory/shared_tensor.h"

namespace reigen::tensor {

at::Tensor MemoryResource::make(const FlatBuffer& buffer) {
  const bool on_disk = buffer.residence.medium == layout::Medium::kDisk;
  if (buffer.residence.medium == layout::Medium::kDevice) return make_on_gpu(buffer);
  if (buffer.residence.medium == layout::Medium::kPinned) {
    return pinned_part_of_tensor(buffer.count, buffer.type, buffer.first, buffer.last, gpu_);
  }
  if (buffer.residence.is_common) {
    return on_disk ? common_disk_tensor(ranks_, buffer.count, buffer.type, directory_)
                   : common_tensor(ranks_, buffer.count, buffer.type);
  }
  if (on_disk) return disk_tensor(buffer.count, buffer.type, directory_, buffer.first, buffer.last);
  if (buffer.travels) return shared_tensor(ranks_, buffer.count, buffer.type);
  return lazy_tensor(buffer.count, buffer.type, buffer.last - buffer.first < buffer.count);
}

// If the calls of the group cannot use the GPU's memory, the group has only one rank, because data_parallel() refuses
// such a group of several ranks. One rank sends nothing, so the buffer need not be from the group.
at::Tensor MemoryResource::make_on_gpu(const FlatBuffer& buffer) {
  REIGEN_CHECK(!buffer.residence.is_common, "[flat_parameters] ranks cannot have common memory on {} yet", gpu_.str());
  if (is_of_the_group(buffer)) {
    // The group takes its memory from the driver, which does not have what LibTorch keeps for later tensors.
    lend_kept_memory();
    const std::int64_t bytes = buffer.count * static_cast<std::int64_t>(c10::elementSize(buffer.type));
    if (base::waiting_is_allowed()) device::make_room(gpu_.index(), static_cast<std::size_t>(bytes) + kMiB);
    return shared_tensor(ranks_, buffer.count, buffer.type, gpu_);
  }
  return part_of_tensor(buffer.count, buffer.type, buffer.first, buffer.last, gpu_);
}

bool MemoryResource::is_of_the_group(const FlatBuffer& buffer) const {
  return buffer.residence.medium == layout::Medium::kDevice && buffer.travels && !ranks_.device().is_cpu();
}

at::Tensor MemoryResource::take(layout::Role role, const FlatBuffer& buffer) {
  at::Tensor tensor = make(buffer);
  note(role, tensor, (buffer.last - buffer.first) * static_cast<std::int64_t>(c10::elementSize(buffer.type)));
  taken_.back().is_of_the_group = is_of_the_group(buffer);
  return tensor;
}

void MemoryResource::note(layout::Role role, const at::Tensor& tensor, std::int64_t bytes) {
  std::erase_if(taken_, [](const Taken& one) { return one.storage.expired(); });
  taken_.push_back({role, bytes, false, tensor.storage().getWeakStorageImpl()});
}

std::int64_t MemoryResource::bytes(layout::Role role) const {
  std::int64_t sum = 0;
  for (const Taken& one : taken_) sum += one.role == role && !one.storage.expired() ? one.bytes : 0;
  return sum;
}

std::int64_t MemoryResource::bytes_of_the_group() const {
  std::int64_t sum = 0;
  for (const Taken& one : taken_) sum += one.is_of_the_group && !one.storage.expired() ? one.bytes : 0;
  return sum;
}

}  // namespace reigen::tensor
