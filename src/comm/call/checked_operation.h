// An operation that checks the ranks for which it waits. Backend::check_peers() calls its check_peers().
#pragma once

#include <chrono>

#include "comm/backend.h"

namespace reigen::comm {

class CheckedOperation : public Operation {
 public:
  // Throws when a rank that this operation waits for is dead, stopped or gone, or when the wait has lasted too long.
  virtual void check_peers(std::chrono::nanoseconds waited) const = 0;
};

}  // namespace reigen::comm
