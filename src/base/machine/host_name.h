// The host name of this machine.
#pragma once

#include <string>

namespace reigen::base {

// Returns "unknown" if the system does not report the name.
std::string host_name();

}  // namespace reigen::base
