// Every environment variable that Reigen itself defines, one function each; docs/environment.md is written from this
// file. Variables of other launchers (torchrun, Slurm, MPI) are read in launch/environment.cc.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace reigen::base {

// The raw value; empty counts as not set.
std::optional<std::string> get_environment(const char* name);

namespace environment {

struct Variable {
  const char* name;
  const char* meaning;
  const char* values;
};

const std::vector<Variable>& table();  // for docs and `reigen help environment`

std::optional<std::string> log();    // REIGEN_LOG
std::optional<std::string> store();  // REIGEN_STORE: tcp://host:port of the launcher's store
std::optional<std::string> job();    // REIGEN_JOB: identity of the job, also the secret that peers must know
std::optional<std::string>
console();  // REIGEN_CONSOLE: "columns" of the terminal behind the launcher; not set: no terminal
std::optional<std::string> command();                 // REIGEN_COMMAND: the launcher `reigen` as the user called it
std::optional<std::string> flight();                  // REIGEN_FLIGHT: descriptor of the memory for the flight record
std::optional<std::string> timeout();                 // REIGEN_TIMEOUT: seconds a collective may wait for a live peer
std::optional<std::string> spawn();                   // REIGEN_SPAWN: set by spawn() for the processes it starts
std::optional<std::string> keep_memory();             // REIGEN_KEEP_MEMORY
std::optional<std::string> comm_backend();            // REIGEN_COMM_BACKEND: as InitOptions::backend
std::optional<std::string> comm_algorithms();         // REIGEN_COMM_ALGORITHMS: as InitOptions::algorithms
std::optional<std::string> comm_network();            // REIGEN_COMM_NETWORK: as InitOptions::network
std::optional<std::string> comm_join_timeout();       // REIGEN_COMM_JOIN_TIMEOUT: seconds, for all ranks to come
std::optional<std::string> comm_heartbeat_timeout();  // REIGEN_COMM_HEARTBEAT_TIMEOUT: seconds without a sign of life
std::optional<std::string> comm_report_after();  // REIGEN_COMM_REPORT_AFTER: seconds until those who are late are named
std::optional<std::string> comm_timeout();       // REIGEN_COMM_TIMEOUT: REIGEN_TIMEOUT, by the name of comm.timeout
std::optional<std::string> comm_machine_id();  // REIGEN_COMM_MACHINE_ID: ranks with another word are on other machines
std::optional<std::string> tcp_interface();    // REIGEN_TCP_INTERFACE: the interface that backend tcp listens on

}  // namespace environment
}  // namespace reigen::base
