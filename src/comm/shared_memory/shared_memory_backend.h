// All ranks on one machine, talking through memory that all of them map.
#pragma once

#include <memory>

#include "comm/backend.h"
#include "reigen/comm/communicator.h"

namespace reigen::comm::shared_memory {

std::unique_ptr<Backend> make_backend(const GroupOptions& options);

}  // namespace reigen::comm::shared_memory
