// Processes with one worker each, beside which `reigen data bench` puts the threads of one process.
// Thread rule: belongs to one thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "reigen/base/unique_fd.h"

namespace reigen::apps::data {

class WorkerProcesses {
 public:
  // Starts `count` times this program with these arguments (a command that serves on_demand()), and waits until all are
  // ready. Throws IoError if one ends instead.
  WorkerProcesses(const std::vector<std::string>& arguments, int count);
  ~WorkerProcesses();                                // ends them
  WorkerProcesses(const WorkerProcesses&) = delete;  // the processes have one owner
  WorkerProcesses& operator=(const WorkerProcesses&) = delete;

  // Each process does `count` samples, at positions that follow each other. Returns the sum of their samples per
  // second.
  double run(std::int64_t begin, std::int64_t count);

 private:
  struct Process {
    pid_t pid = -1;
    UniqueFd channel;  // its stdin and its stdout
  };
  Process start(const std::vector<std::string>& arguments) const;

  std::vector<Process> processes_;
};

}  // namespace reigen::apps::data
