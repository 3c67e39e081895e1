// The backend for ranks of one machine that read and write each other's device memory. Each rank has its own GPU, or
// several ranks share one. Its code is that of the backend shared_memory, but a GPU stores, adds and copies the data
// (CudaMedium, cuda_medium.h). The ranks wait for each other through shared host memory. The results have the same bits
// as those of shared_memory.
#pragma once

#include <memory>

#include "comm/backend.h"

namespace reigen::comm::cuda_ipc {

// Throws BackendError (exit code 69) if the GPU, CUDA or the plug-in of kernels is missing.
std::unique_ptr<Backend> make_backend(const GroupOptions& options);

}  // namespace reigen::comm::cuda_ipc
