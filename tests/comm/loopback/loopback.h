// An engine for ranks that are threads of one process. It shows which functions an engine must have, and is not fast.
// The last rank that makes a call does the work of all ranks, on the memory of all ranks.
#pragma once

#include "comm/backends.h"

namespace reigen::comm::loopback {

// The value for GroupOptions::engine.
const BackendEntry& entry();

}  // namespace reigen::comm::loopback
