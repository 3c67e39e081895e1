// The state, parent and children of other processes, from /proc.
#pragma once

#include <sys/types.h>

#include <vector>

namespace reigen::base {

// The letter of the process's state in /proc/PID/stat: R, S, D, T (stopped), Z (ended, not yet reaped)...; '?' if the
// process is gone.
char state_of(pid_t pid);

// The parent of a process; 0 if the process is gone.
pid_t parent_of(pid_t pid);

// The direct children of a process, from /proc/PID/task/*/children; empty if the process is gone.
std::vector<pid_t> children_of(pid_t pid);

// The first stopped process (SIGSTOP) among the process itself and its descendants; 0 if none is stopped.
pid_t find_stopped(pid_t pid);

}  // namespace reigen::base
