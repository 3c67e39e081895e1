// The library of kernels that do harm (cuda/faults.cu), over the stand-in.
#include <cuda_runtime_api.h>

#include <chrono>
#include <thread>

#include "fakes/cuda/stand_in.h"

extern "C" {

// The stand-in has no error that comes later, so it tells the error at the start of the kernel.
int reigen_cuda_faults_kernel(void* /*stream*/) { return cudaErrorIllegalAddress; }

int reigen_cuda_faults_endless(void* stream) {
  reigen::testing::stand_in::enqueue(static_cast<cudaStream_t>(stream), [] {
    for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
  });
  return cudaSuccess;
}

}  // extern "C"
