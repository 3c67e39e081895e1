// Kernels that do harm, for tests of what the other ranks are told when a GPU fails (check_group --fault). The
// functions start a kernel on the stream, and return CUDA's error code of the start.
#include <cuda_runtime_api.h>

#include <cstdint>

#include "last_error.h"

namespace reigen::device {
namespace {

__global__ void write_to(int* place) { *place = 1; }

// The assembler text keeps the compiler from removing the loop.
__global__ void run_for_ever() {
  for (;;) asm volatile("nanosleep.u32 1000;");
}

}  // namespace
}  // namespace reigen::device

// Writes to an address that is nobody's. Every later call of CUDA in this process fails.
extern "C" int reigen_cuda_faults_kernel(void* stream) {
  reigen::device::write_to<<<1, 1, 0, static_cast<cudaStream_t>(stream)>>>(reinterpret_cast<int*>(std::uintptr_t{8}));
  return reigen::device::forgotten(cudaGetLastError());
}

extern "C" int reigen_cuda_faults_endless(void* stream) {
  reigen::device::run_for_ever<<<1, 1, 0, static_cast<cudaStream_t>(stream)>>>();
  return reigen::device::forgotten(cudaGetLastError());
}
