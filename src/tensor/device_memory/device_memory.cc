#include "tensor/device_memory/device_memory.h"

#include <c10/core/CachingDeviceAllocator.h>

#include "device/cuda.h"

namespace reigen::tensor {
namespace {

// Returns null for the CPU, and before LibTorch has used the device.
c10::DeviceAllocator* allocator_of(const c10::Device& device) {
  if (device.is_cpu()) return nullptr;
  auto* allocator = dynamic_cast<c10::DeviceAllocator*>(c10::GetAllocator(device.type()));
  return allocator != nullptr && allocator->initialized() ? allocator : nullptr;
}

}  // namespace

std::optional<DeviceMemory> device_memory(const c10::Device& device) {
  c10::DeviceAllocator* const allocator = allocator_of(device);
  if (allocator == nullptr) return std::nullopt;
  const auto stats = allocator->getDeviceStats(device.index());
  constexpr auto kAll = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  return DeviceMemory{.allocated = stats.allocated_bytes[kAll].current,
                      .most_allocated = stats.allocated_bytes[kAll].peak,
                      .reserved = stats.reserved_bytes[kAll].current,
                      .most_reserved = stats.reserved_bytes[kAll].peak,
                      .fragmented = stats.inactive_split_bytes[kAll].current};
}

void forget_most(const c10::Device& device) {
  if (c10::DeviceAllocator* const allocator = allocator_of(device)) allocator->resetPeakStats(device.index());
}

void lend_kept_memory() {
  device::release_by([] {
    if (c10::DeviceAllocator* const allocator = allocator_of(c10::DeviceType::CUDA)) allocator->emptyCache();
  });
}

}  // namespace reigen::tensor
