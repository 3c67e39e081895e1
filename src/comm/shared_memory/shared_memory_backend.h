// The backend for ranks on one machine, which communicate through memory that all of them map.
#pragma once

#include <memory>

#include "comm/backend.h"
#include "comm/shared_memory/medium.h"
#include "reigen/comm/communicator.h"

namespace reigen::comm::shared_memory {

std::unique_ptr<Backend> make_backend(const GroupOptions& options);
// Makes a second lane of `first`: a backend for the same ranks with the same memory. Calls of both backends may be in
// flight at the same time. `first` must be from make_backend() or make_child(). An error message about a rank names
// that rank's last call, counted over both lanes.
std::unique_ptr<Backend> make_lane(Backend& first, const GroupOptions& options);
// As make_backend(), for the memory of a device (`medium`). The backend has the name of the medium.
std::unique_ptr<Backend> make_backend_on(const GroupOptions& options, std::shared_ptr<Medium> medium);

}  // namespace reigen::comm::shared_memory
