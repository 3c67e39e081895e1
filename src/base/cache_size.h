// How much the last level of the processor's caches holds.
#pragma once

#include <cstddef>
#include <string>

namespace reigen::base {

// As the kernel tells it for the first processor; 32 MiB where it tells nothing. sysconf() is not asked: in a virtual
// machine it counts the caches of the whole host. `root` stands before /sys (tests).
std::size_t last_level_cache_bytes(const std::string& root = {});

}  // namespace reigen::base
