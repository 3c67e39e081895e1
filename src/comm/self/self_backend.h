// A group of one: every operation is a copy, or nothing.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "comm/call/call.h"

namespace reigen::comm::self {

const std::string& backend_name();
void run(const Call& call);
// Ordinary memory, zeroed and aligned as shared memory is. Throws IoError (71).
std::shared_ptr<void> allocate(std::size_t bytes);

}  // namespace reigen::comm::self
