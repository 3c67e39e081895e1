// The name of this machine, as people know it.
#pragma once

#include <string>

namespace reigen::base {

// "unknown" where the system does not say.
std::string host_name();

}  // namespace reigen::base
