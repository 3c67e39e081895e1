// The control groups (cgroups) that a process is in, of version 1 and version 2.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace reigen::base {

struct ControlGroup {
  std::string folder;      // the folder with the group's files
  bool is_unified = true;  // whether the group is of version 2
  std::string path;        // the group's path as in /proc/PID/cgroup
};

// The group in which `controller` ("memory", "cpu") counts this process, then every group above it, because each of
// them may have a limit. In a container these are only the groups that the container can see. `root` is put before
// /proc and /sys, for tests.
std::vector<ControlGroup> control_groups(const std::string& controller, const std::string& root = {});

// Whether the process is in the group or in a group below it. Returns true also if the groups of the process cannot be
// read.
bool is_below(const ControlGroup& group, const std::string& controller, pid_t pid, const std::string& root = {});

}  // namespace reigen::base
