// The amount of memory that this process can still allocate.
#pragma once

#include <cstdint>
#include <string>

namespace reigen::base {

struct AvailableMemory {
  std::uint64_t bytes = 0;
  std::string source = {};    // the origin, for messages: "MemAvailable in /proc/meminfo"; empty: not known
  std::string identity = {};  // equal for processes that share this memory; names the kernel and the limiting group
};

// The least of the memory that the kernel calls available and the memory that each control group of this process still
// allows. `root` is put before /proc and /sys, for tests.
AvailableMemory available_memory(const std::string& root = {});

}  // namespace reigen::base
