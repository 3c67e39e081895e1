// The size of the last-level caches of this machine's processors.
#pragma once

#include <cstddef>
#include <string>

namespace reigen::base {

// The bytes of all last-level caches together, each counted once, as the kernel reports them; 32 MiB if the kernel
// reports none. sysconf() is not used: in a virtual machine it counts the caches of the whole host. `root` is put
// before /sys, for tests.
std::size_t last_level_cache_bytes(const std::string& root = {});

}  // namespace reigen::base
