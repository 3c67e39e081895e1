// Ranks with a GPU each, talking through NCCL. Buffers lie on the device; see docs/backends.md for the order with other
// streams.
#pragma once

#include <memory>

#include "comm/backend.h"
#include "reigen/comm/communicator.h"

namespace reigen::comm::nccl {

// Throws BackendError (69) when this build has no NCCL or no CUDA device is visible.
std::unique_ptr<Backend> make_backend(const GroupOptions& options);

}  // namespace reigen::comm::nccl
