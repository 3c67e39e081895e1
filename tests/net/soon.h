// A deadline for events that must happen, even on a slow machine.
#pragma once

#include <chrono>

#include "reigen/base/deadline.h"

namespace reigen::net {

inline Deadline soon() { return Deadline::after(std::chrono::seconds(30)); }

}  // namespace reigen::net
