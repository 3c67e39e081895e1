// A group of one rank: every operation is a copy, a reduction of one input, or nothing.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "comm/call/call.h"

namespace reigen::comm::self {

const std::string& backend_name();
void run(const Call& call);
// Returns ordinary memory, zeroed, and aligned to 64 bytes as shared memory is. Throws IoError (exit code 71) when
// there is not enough memory.
std::shared_ptr<void> allocate(std::size_t bytes);

}  // namespace reigen::comm::self
