#include "base/environment.h"

#include <unistd.h>

#include <cstdlib>

namespace reigen::base {

std::optional<std::string> get_environment(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return std::string(value);
}

std::vector<std::pair<std::string, std::string>> all_environment() {
  std::vector<std::pair<std::string, std::string>> variables;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string text(*entry);
    const std::size_t equals = text.find('=');
    if (equals != std::string::npos && equals > 0)
      variables.emplace_back(text.substr(0, equals), text.substr(equals + 1));
  }
  return variables;
}

namespace environment {

const std::vector<Variable>& table() {
  static const std::vector<Variable> kTable = {
      {"REIGEN_LOG", "which log lines are shown on stderr", "error, warning (default), info, debug"},
      {"REIGEN_STORE", "where the job's key/value store listens; set by `reigen run`", "tcp://host:port"},
      {"REIGEN_JOB", "identity of the job; peers that do not know it are refused; set by `reigen run`", "any text"},
      {"REIGEN_CONSOLE", "a terminal shows this rank's output through the launcher; set by `reigen run`",
       "width in columns"},
      {"REIGEN_COMMAND",
       "the launcher as the user called it, for commands that ranks print; set by `reigen train` and `reigen run`",
       "a path"},
      {"REIGEN_TIMEOUT", "how long a collective waits for ranks that are alive but do not come",
       "seconds (default 600)"},
      {"REIGEN_FLIGHT", "memory for this rank's flight record; set by `reigen run`", "number of an open descriptor"},
      {"REIGEN_SPAWN", "which call of spawn() this process was started for; set by spawn()", "a number"},
      {"REIGEN_KEEP_MEMORY", "keep freed memory in the process instead of giving it back at every step",
       "1 (default), 0"},
      {"REIGEN_COMM_BACKEND", "through what the ranks talk, where the program does not say it",
       "auto (default), shared_memory, tcp, mpi, nccl, cuda_ipc, hierarchical"},
      {"REIGEN_COMM_ALGORITHMS", "which algorithm runs what, where the program does not say it",
       "e.g. all_reduce:ring@>1M (default: by size)"},
      {"REIGEN_COMM_NETWORK", "through what machines talk, where the program does not say it", "tcp (default), mpi"},
      {"REIGEN_COMM_SEGMENTS", "into how many pieces backend tcp cuts what can be cut", "0 (default: by size)"},
      {"REIGEN_COMM_CONNECTIONS", "how many sockets of backend tcp share a large message between two ranks",
       "1 (default)"},
      {"REIGEN_COMM_JOIN_TIMEOUT", "how long the ranks of a job wait for each other at its start",
       "seconds (default 60)"},
      {"REIGEN_COMM_HEARTBEAT_TIMEOUT",
       "how long a rank may give no sign of life (stopped, in a debugger, frozen with its machine) before it is lost",
       "seconds (default 10)"},
      {"REIGEN_COMM_REPORT_AFTER", "when a warning names live ranks for which a collective waits",
       "seconds (default 30)"},
      {"REIGEN_COMM_TIMEOUT", "REIGEN_TIMEOUT, named as the option comm.timeout of recipes; wins over it",
       "seconds (default 600)"},
      {"REIGEN_COMM_MACHINE_ID", "ranks with another word count as ranks of other machines: one that plays several",
       "any text (default: what ranks can open of each other's memory decides)"},
      {"REIGEN_TCP_INTERFACE", "the network interface through which ranks of backend tcp reach each other",
       "eth0 (default: all are tried)"},
  };
  return kTable;
}

std::optional<std::string> log() { return get_environment("REIGEN_LOG"); }
std::optional<std::string> store() { return get_environment("REIGEN_STORE"); }
std::optional<std::string> job() { return get_environment("REIGEN_JOB"); }
std::optional<std::string> console() { return get_environment("REIGEN_CONSOLE"); }
std::optional<std::string> command() { return get_environment("REIGEN_COMMAND"); }
std::optional<std::string> flight() { return get_environment("REIGEN_FLIGHT"); }
std::optional<std::string> spawn() { return get_environment("REIGEN_SPAWN"); }
std::optional<std::string> keep_memory() { return get_environment("REIGEN_KEEP_MEMORY"); }
std::optional<std::string> tcp_interface() { return get_environment("REIGEN_TCP_INTERFACE"); }

}  // namespace environment
}  // namespace reigen::base
