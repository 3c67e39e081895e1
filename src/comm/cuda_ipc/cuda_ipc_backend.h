// The backend for ranks of one machine that read and write each other's device memory. Each rank has its own GPU, or
// several ranks share one. The engine is that of shared_memory/, running on a Medium that is a GPU (cuda_medium.h): the
// ranks meet through pages of host memory, and the results have the same bits.
#pragma once

#include <memory>

#include "comm/backend.h"

namespace reigen::comm::cuda_ipc {

// Throws BackendError (69) where the GPU, CUDA or the plug-in of kernels is missing.
std::unique_ptr<Backend> make_backend(const GroupOptions& options);

}  // namespace reigen::comm::cuda_ipc
