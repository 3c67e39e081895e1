// The backend for ranks on several machines: shared memory inside a machine, a network between machines.
#pragma once

#include <memory>

#include "comm/backend.h"

namespace reigen::comm::hierarchical {

// Makes a hierarchical backend, even if all ranks are on one machine, or no two ranks are.
std::unique_ptr<Backend> make_backend(const GroupOptions& options);

// Makes the backend "auto": shared memory if all ranks are on one machine, the network if no two ranks are on one
// machine, otherwise a hierarchical backend.
std::unique_ptr<Backend> make_automatic(const GroupOptions& options);

}  // namespace reigen::comm::hierarchical
