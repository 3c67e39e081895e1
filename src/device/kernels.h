// The kernels of the plug-in libreigen_cuda.so (kernel_calls.h), which is opened when a device is first used.
// Thread rule: any thread.
#pragma once

#include <string>

#include "device/kernel_calls.h"

namespace reigen::device {

struct Kernels {
  decltype(&reigen_cuda_reduce) reduce;
  decltype(&reigen_cuda_optimize) optimize;
  decltype(&reigen_cuda_finish_norm) finish_norm;
  decltype(&reigen_cuda_norm) norm;
  decltype(&reigen_cuda_norm_backward) norm_backward;
  decltype(&reigen_cuda_norm_sums) norm_sums;
  decltype(&reigen_cuda_batch_statistics) batch_statistics;
  decltype(&reigen_cuda_batch_norm) batch_norm;
  decltype(&reigen_cuda_batch_norm_sums) batch_norm_sums;
  decltype(&reigen_cuda_batch_norm_backward) batch_norm_backward;
  decltype(&reigen_cuda_cross_entropy) cross_entropy;
  decltype(&reigen_cuda_multiply) multiply;
  decltype(&reigen_cuda_gelu) gelu;
  decltype(&reigen_cuda_gelu_backward) gelu_backward;
  decltype(&reigen_cuda_swiglu) swiglu;
  decltype(&reigen_cuda_swiglu_backward) swiglu_backward;
  decltype(&reigen_cuda_rotary) rotary;
  decltype(&reigen_cuda_embedding_sums) embedding_sums;
};

// The first call opens the plug-in, after the CUDA runtime. It throws a BackendError with exit code 69 if the plug-in
// or the CUDA runtime is missing, or if the plug-in belongs to another version of Reigen; a later call tries again.
// Tests link their own version of kernels(), whose functions run on the host.
const Kernels& kernels();

// The path of the plug-in. Throws as kernels() does.
const std::string& kernels_path();

}  // namespace reigen::device
