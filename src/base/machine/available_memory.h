// The amount of memory that this process can still allocate.
#pragma once

#include <cstdint>
#include <string>

namespace reigen::base {

struct AvailableMemory {
  std::uint64_t bytes = 0;
  std::string source = {};    // for messages, such as "MemAvailable in /proc/meminfo"; empty if `bytes` is not known
  std::string identity = {};  // kernel and limiting control group; equal in all processes that share this memory
};

// The smallest of these amounts: the memory that the kernel reports as available, and for each control group of this
// process the memory that its limit still allows. `root` is put before /proc and /sys, for tests.
AvailableMemory available_memory(const std::string& root = {});

}  // namespace reigen::base
