// How much the last level of the processors' caches holds.
#pragma once

#include <cstddef>
#include <string>

namespace reigen::base {

// All caches of that level together, each counted once, as the kernel tells it; 32 MiB where it tells nothing.
// sysconf() is not asked: in a virtual machine it counts the caches of the whole host. `root` stands before /sys
// (tests).
std::size_t last_level_cache_bytes(const std::string& root = {});

}  // namespace reigen::base
