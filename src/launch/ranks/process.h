// Starts one rank's process, and looks at processes through /proc.
#pragma once

#include <sys/types.h>

#include <csignal>
#include <map>
#include <string>
#include <vector>

#include "reigen/base/unique_fd.h"

struct rlimit;

namespace reigen::launch {

struct ProcessPlan {
  const char* program = nullptr;
  char* const* arguments = nullptr;    // ends with nullptr
  char* const* environment = nullptr;  // ends with nullptr
  int input = -1;
  int output = -1;
  int error = -1;
  const sigset_t* signal_mask = nullptr;
  const rlimit* open_files = nullptr;
  int inherited = -1;  // one more descriptor that the program inherits under the same number; -1 if there is none
};

struct Process {
  pid_t pid = -1;
  UniqueFd handle = {};       // pidfd, readable when the process has ended; empty on kernels before 5.3
  UniqueFd exec_status = {};  // a pipe: gives errno as an int when exec fails, else end of file
};

// The process leads a process group of its own and is killed when the calling thread ends. Throws IoError with
// exit code 71 if no process can be made.
Process start_process(const ProcessPlan& plan);

// Waits until the program runs or exec has failed. Returns 0, or the errno of exec.
int wait_for_exec(const Process& process);

// The environment of a process, by name.
using Variables = std::map<std::string, std::string>;

// The variables as NAME=value.
std::vector<std::string> entries_of(const Variables& variables);

// Pointers to the strings, as exec takes them: nullptr follows the last. They are valid as long as the strings are.
std::vector<char*> pointers_to(const std::vector<std::string>& strings);

// True if the process was started with NAME=value in its environment (and has not overwritten it).
bool has_variable(pid_t pid, const std::string& name_and_value);

// The processes with NAME=value in their environment, without this one.
std::vector<pid_t> carriers_of(const std::string& name_and_value);

// Kills these processes. Returns false if there were none. Repeat the call until it returns false: it can miss a
// process that is just being started, and a killed process needs a moment to end.
bool kill_carriers(const std::string& name_and_value);

}  // namespace reigen::launch
