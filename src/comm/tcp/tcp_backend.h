// The backend for ranks on any machines that can reach each other over TCP.
#pragma once

#include <memory>

#include "comm/backend.h"

namespace reigen::comm::tcp {

std::unique_ptr<Backend> make_backend(const GroupOptions& options);

}  // namespace reigen::comm::tcp
