// The backend for ranks of one machine that read and write each other's device memory. Each rank has its own GPU, or
// several ranks share one. It is the backend of shared_memory/ with a GPU as its Medium (cuda_medium.h). The ranks meet
// through pages of host memory, and the results have the same bits as those of shared_memory.
#pragma once

#include <memory>

#include "comm/backend.h"

namespace reigen::comm::cuda_ipc {

// Throws BackendError (exit code 69) if the GPU, CUDA or the plug-in of kernels is missing.
std::unique_ptr<Backend> make_backend(const GroupOptions& options);

}  // namespace reigen::comm::cuda_ipc
