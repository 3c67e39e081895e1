// The stand-in for CUDA as a library that a program opens. It hides device memory from the program, and other processes
// can open it, from the start. Here are also the functions of CUDA that only programs with calls of CUDA of their own
// need (cuda/check_*.cc).
#include <cuda_runtime_api.h>

#include <cstring>

#include "fakes/cuda/device.h"
#include "fakes/cuda/stand_in.h"

namespace stand_in = reigen::testing::stand_in;

namespace {

[[maybe_unused]] const bool kReady = [] {
  stand_in::hide_memory();
  stand_in::share_memory();
  return true;
}();

}  // namespace

extern "C" {

cudaError_t cudaDeviceSynchronize() {
  stand_in::wait_until_idle(stand_in::device_now());
  return cudaSuccess;
}

// Waits for the default stream, as with memory of the host that is not pinned.
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  const int device = stand_in::device_now();
  if (kind != cudaMemcpyDeviceToHost) stand_in::require_memory(to, bytes, device, "cudaMemcpy to");
  if (kind != cudaMemcpyHostToDevice) stand_in::require_memory(from, bytes, device, "cudaMemcpy from");
  stand_in::queue_of(nullptr).wait_until_idle();
  std::memcpy(stand_in::reach(to), stand_in::reach(from), bytes);
  return cudaSuccess;
}

cudaError_t cudaMemset(void* data, int value, std::size_t bytes) {
  return cudaMemsetAsync(data, value, bytes, nullptr);
}

}  // extern "C"
