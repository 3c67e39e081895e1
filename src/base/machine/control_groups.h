// The control groups that a process is in, of version 1 and of version 2.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace reigen::base {

struct ControlGroup {
  std::string folder;      // where its files lie
  bool is_unified = true;  // of version 2
  std::string path;        // as /proc/PID/cgroup has it
};

// The group in which `controller` ("memory", "cpu") counts this process, then every group above it: a limit may stand
// in any of them. In a container those that it can see. `root` stands before /proc and /sys (tests).
std::vector<ControlGroup> control_groups(const std::string& controller, const std::string& root = {});

// True when the process is in the group or below it, and where that cannot be known.
bool is_below(const ControlGroup& group, const std::string& controller, pid_t pid, const std::string& root = {});

}  // namespace reigen::base
