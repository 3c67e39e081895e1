// How much memory this process can still get.
#pragma once

#include <cstdint>
#include <string>

namespace reigen::base {

struct AvailableMemory {
  std::uint64_t bytes = 0;
  std::string source = {};    // for messages: "MemAvailable in /proc/meminfo"; empty: not known
  std::string identity = {};  // the same for processes that draw from the same: kernel and, with one, control group
};

// The least of what the kernel calls available and what every control group of this process still allows.
// `root` stands before /proc and /sys (tests).
AvailableMemory available_memory(const std::string& root = {});

}  // namespace reigen::base
