// Ranks of one machine, each with a GPU or several on one, which read and write each other's device memory. They meet
// through pages of the host's memory as those of shared_memory/ do, and have its results to the bit: that engine runs
// here on a Medium that is a GPU (cuda_medium.h).
#pragma once

#include <memory>

#include "comm/backend.h"

namespace reigen::comm::cuda_ipc {

// Throws BackendError (69) where there is no GPU, CUDA or plug-in of kernels.
std::unique_ptr<Backend> make_backend(const GroupOptions& options);

}  // namespace reigen::comm::cuda_ipc
