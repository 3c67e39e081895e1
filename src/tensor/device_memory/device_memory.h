// What LibTorch's allocator of a GPU has given out, and what it has taken from the driver.
//
// Ranks that are threads of one process share the allocator of a GPU, so the numbers are those of all of them. Memory
// that does not come from LibTorch's allocator (the heap of a group, memory/shared_tensor.h) is not in them.
// Thread rule: any thread.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <optional>

namespace reigen::tensor {

// All members are numbers of bytes.
struct DeviceMemory {
  std::int64_t allocated = 0;       // of the tensors that exist
  std::int64_t most_allocated = 0;  // the largest `allocated` since the last forget_most()
  std::int64_t reserved = 0;        // taken from the driver: tensors, and memory that is kept for later tensors
  std::int64_t most_reserved = 0;   // the largest `reserved` since the last forget_most()
  std::int64_t fragmented = 0;      // of `reserved`: free pieces of blocks whose other pieces are tensors
};

// Nothing for the CPU, and if LibTorch is too old to tell (it has no c10::DeviceAllocator).
std::optional<DeviceMemory> device_memory(const c10::Device& device);

// From now on most_allocated and most_reserved count from what is there now.
void forget_most(const c10::Device& device);

// From now on device::make_room() lets LibTorch give memory back to the driver that it keeps for later tensors, so that
// groups get it. Costs nothing when it is called again.
void lend_kept_memory();

}  // namespace reigen::tensor
