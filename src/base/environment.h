// Every environment variable that Reigen itself defines; docs/environment.md is written from this file. The variables
// of other launchers (torchrun, Slurm, MPI) are read in launch/environment.cc.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace reigen::base {

// The raw value of a variable; an empty value counts as not set.
std::optional<std::string> get_environment(const char* name);

// Names and values of all environment variables of this process.
std::vector<std::pair<std::string, std::string>> all_environment();

namespace environment {

struct Variable {
  const char* name;
  const char* meaning;
  const char* values;
};

const std::vector<Variable>& table();  // `reigen help environment` and docs/environment.md list these variables

std::optional<std::string> log();    // REIGEN_LOG
std::optional<std::string> store();  // REIGEN_STORE: tcp://host:port of the launcher's store
std::optional<std::string> job();    // REIGEN_JOB: the job's secret identity; ranks that do not know it are refused
std::optional<std::string>
console();  // REIGEN_CONSOLE: width in columns of the launcher's terminal; not set if the launcher has none
std::optional<std::string> command();        // REIGEN_COMMAND: the path of the launcher, as the user typed it
std::optional<std::string> flight();         // REIGEN_FLIGHT: file descriptor of the memory for the flight record
std::optional<std::string> spawn();          // REIGEN_SPAWN: which call of spawn() has started this process
std::optional<std::string> keep_memory();    // REIGEN_KEEP_MEMORY: 0 returns freed memory to the kernel at every step
std::optional<std::string> tcp_interface();  // REIGEN_TCP_INTERFACE: the interface that backend tcp listens on

}  // namespace environment
}  // namespace reigen::base
