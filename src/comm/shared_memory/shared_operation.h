// An operation over shared memory, as the backend sees it.
#pragma once

#include <chrono>

#include "comm/backend.h"

namespace reigen::comm::shared_memory {

class SharedOperation : public Operation {
 public:
  // Throws when a rank that this operation waits for is dead, stopped or gone, or when the wait has lasted too long.
  virtual void check_peers(std::chrono::nanoseconds waited) const = 0;
};

}  // namespace reigen::comm::shared_memory
