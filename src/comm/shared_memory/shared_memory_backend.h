// The backend for ranks on one machine. They talk through memory that all of them map.
#pragma once

#include <memory>

#include "comm/backend.h"
#include "comm/shared_memory/medium.h"
#include "reigen/comm/communicator.h"

namespace reigen::comm::shared_memory {

std::unique_ptr<Backend> make_backend(const GroupOptions& options);
// The same for the memory of a device. The backend has the name of the medium.
std::unique_ptr<Backend> make_backend_on(const GroupOptions& options, std::shared_ptr<Medium> medium);

}  // namespace reigen::comm::shared_memory
