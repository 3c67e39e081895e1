// How a program becomes a rank.
//
//   auto world = reigen::init();      // under reigen run, torchrun, srun or mpirun: that job's ranks; alone: one rank
//   reigen::spawn(4, [](reigen::Communicator& world) { ... });         // four processes from inside a program
//   reigen::run_threads(4, [](reigen::Communicator& world) { ... });   // four ranks as threads of this process
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "reigen/comm/communicator.h"

namespace reigen {

// As those of GroupOptions. What is left empty or 0 is read from the environment (docs/environment.md), so that whoever
// starts the program can choose it; what is not set there either has GroupOptions' value.
struct InitOptions {
  std::string backend = {};  // REIGEN_COMM_BACKEND, else auto
  std::string name = "world";
  std::string algorithms = {};  // REIGEN_COMM_ALGORITHMS
  int segments = 0;             // REIGEN_COMM_SEGMENTS, else by size
  int connections = 0;          // REIGEN_COMM_CONNECTIONS, else 1
  std::string network = {};     // REIGEN_COMM_NETWORK, else tcp
  std::string machine_id = {};  // REIGEN_COMM_MACHINE_ID
  // cuda: the group carries the memory of a GPU as well; without an index the only one that is visible, else the rank's
  // number on its machine modulo theirs.
  Device device = {};
  std::string device_backend = {};                   // auto
  std::chrono::milliseconds timeout = {};            // REIGEN_TIMEOUT, else 10 minutes: for ranks that live
  std::chrono::milliseconds join_timeout = {};       // REIGEN_COMM_JOIN_TIMEOUT, else 60 s: for all ranks to come
  std::chrono::milliseconds heartbeat_timeout = {};  // REIGEN_COMM_HEARTBEAT_TIMEOUT, else 10 s: no sign of life
  std::chrono::milliseconds report_after = {};       // REIGEN_COMM_REPORT_AFTER, else 30 s: who is late is named
  // glibc gives large blocks back to the kernel at every step and takes the page faults again: 13 to 20 % of a small
  // model's step. True keeps them in the process (mallopt). REIGEN_KEEP_MEMORY=0 wins.
  bool keep_memory = true;
};

// Blocks until all ranks of the job are there, at most `join_timeout`. Call it once; what it returns is a value like
// any other. Rank 0 warns of variables that begin with REIGEN_ and that nobody reads. From then on an Error that nobody
// catches is printed and ends the program with its exit code. Throws Timeout naming the missing ranks, InvalidArgument
// when the launcher's variables contradict each other.
Communicator init(const InitOptions& options = {});

using RankFunction = std::function<void(Communicator& world)>;

// Starts `ranks` processes that run `function`, waits for all of them. The processes run this program again from main()
// (as Python's spawn does) until they come to this same call, run `function` there and exit: what main() does before it
// is done in every rank. Returns when all ended well; throws Error with the failed rank's exit code and last lines
// otherwise.
void spawn(int ranks, const RankFunction& function);

// Runs `function` on `ranks` threads over an in-process store. The first failure ends the others and is thrown, named.
void run_threads(int ranks, const RankFunction& function, const InitOptions& options = {});

}  // namespace reigen
