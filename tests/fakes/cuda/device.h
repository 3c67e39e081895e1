// The devices of the stand-in: streams are threads with a queue, and device memory is memory of the host.
// Thread rule: any thread.
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fakes/cuda/queue.h"

extern "C" {
int cuStreamWriteValue32_v2(cudaStream_t stream, unsigned long long address, std::uint32_t value, unsigned int flags);
int cuStreamWaitValue32_v2(cudaStream_t stream, unsigned long long address, std::uint32_t value, unsigned int flags);
int cuDeviceGetName(char* name, int length, int device);
int cuDeviceTotalMem_v2(std::size_t* bytes, int device);
}

namespace reigen::testing::stand_in {

// Ends the process, because the caller made a call that has no meaning.
[[noreturn]] void die(const std::string& what);

// The numbers of living objects that the caller must free.
struct Living {
  std::atomic<int> communicators{0};
  std::atomic<int> streams{0};
  std::atomic<int> events{0};
  std::atomic<int> blocks{0};
};
Living& living();

// A function that frees what a cache over the stand-in keeps on a device. leave_memory() calls it.
void set_cache(void (*empty)(int device));

// The queue of the stream; for the default stream, that of the current device.
Queue& queue_of(cudaStream_t stream);
int device_now();

// Waits until the device has nothing to do. cudaFree and every other function that frees memory do this.
void wait_until_idle(int device);

// The address at which a kernel finds the memory at `data`. It is another one if the memory is hidden from the host.
std::byte* reach(const void* data);

// The memory of a device, to be put back later. put_back() waits for the device, and overwrites blocks that were made
// since.
using SavedMemory = std::vector<std::pair<const std::byte*, std::vector<std::byte>>>;
SavedMemory save_memory(int device);
void put_back(int device, const SavedMemory& saved);

// A word of pinned memory that a stream writes or waits for.
std::atomic<std::uint32_t>& word_at(unsigned long long address);

// Ends the process unless all bytes are memory that is not freed, of the device, of one to which it has peer access, or
// pinned memory of the host (-1: only the last).
void require_memory(const void* data, std::size_t bytes, int device, const char* what);

}  // namespace reigen::testing::stand_in
