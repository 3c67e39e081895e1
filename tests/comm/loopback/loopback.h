// An engine for ranks that are threads of one process, to show what an engine must bring: nothing here is fast. The
// last rank of a call carries all of it, on the memory of all ranks.
#pragma once

#include "comm/backends.h"

namespace reigen::comm::loopback {

// For GroupOptions::engine.
const BackendEntry& entry();

}  // namespace reigen::comm::loopback
