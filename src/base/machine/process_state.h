// What /proc tells of other processes.
#pragma once

#include <sys/types.h>

#include <vector>

namespace reigen::base {

// The letter of its state in /proc/PID/stat: R, S, D, T (stopped), Z (ended, not yet reaped)...; '?' when it is gone.
char state_of(pid_t pid);

// 0 when it is gone.
pid_t parent_of(pid_t pid);

// Direct children of a process, from /proc/PID/task/*/children; empty when the process is gone.
std::vector<pid_t> children_of(pid_t pid);

// The process itself or the first of its descendants that is stopped (SIGSTOP); 0: none.
pid_t find_stopped(pid_t pid);

}  // namespace reigen::base
