// The backend for ranks that each have their own GPU: they communicate through NCCL. Buffers are device memory.
// docs/backends.md says how calls are ordered with other streams.
#pragma once

#include <memory>

#include "comm/backend.h"
#include "reigen/comm/communicator.h"

namespace reigen::comm::nccl {

// Throws BackendError (exit code 69) when this build has no NCCL or no GPU is visible.
std::unique_ptr<Backend> make_backend(const GroupOptions& options);

}  // namespace reigen::comm::nccl
