// Functions by which a program becomes a rank.
//
//   auto world = reigen::init();      // the ranks that a launcher (reigen run, torchrun, ...) started, or one rank
//   reigen::spawn(4, [](reigen::Communicator& world) { ... });         // four processes from inside a program
//   reigen::run_threads(4, [](reigen::Communicator& world) { ... });   // four ranks as threads of this process
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "reigen/comm/communicator.h"

namespace reigen {

// The options have the meaning of GroupOptions' members of the same name. An option that is left empty or 0 is read
// from the environment (docs/environment.md), so that the user who starts the program can choose it. If the environment
// does not set the option either, it has the default of GroupOptions. The comment of an option names its variable and
// this default.
struct InitOptions {
  std::string backend = {};  // REIGEN_COMM_BACKEND, else auto
  std::string name = "world";
  std::string algorithms = {};  // REIGEN_COMM_ALGORITHMS
  int segments = 0;             // REIGEN_COMM_SEGMENTS, else by size
  int connections = 0;          // REIGEN_COMM_CONNECTIONS, else 1
  std::string network = {};     // REIGEN_COMM_NETWORK, else tcp
  std::string machine_id = {};  // REIGEN_COMM_MACHINE_ID
  // With cuda, the group's calls also work on the memory of a GPU. Without an index, the rank takes the only visible
  // GPU. If several GPUs are visible, the index is the rank's number on its machine modulo the number of GPUs.
  Device device = {};
  std::string device_backend = {};  // empty means auto
  // REIGEN_TIMEOUT, else 10 minutes. A longer wait for a live rank throws Timeout.
  std::chrono::milliseconds timeout = {};
  // REIGEN_COMM_JOIN_TIMEOUT, else 60 s. This is the longest wait until all ranks have joined.
  std::chrono::milliseconds join_timeout = {};
  // REIGEN_COMM_HEARTBEAT_TIMEOUT, else 10 s. A rank that sends no heartbeat for this time counts as lost.
  std::chrono::milliseconds heartbeat_timeout = {};
  // REIGEN_COMM_REPORT_AFTER, else 30 s. After a longer wait for a live rank, a warning names that rank.
  std::chrono::milliseconds report_after = {};
  // By default glibc returns large freed blocks to the kernel, so every step causes the same page faults again. These
  // page faults take 13 to 20 % of the step time of a small model. If keep_memory is true, freed blocks stay in the
  // process (mallopt). REIGEN_KEEP_MEMORY=0 in the environment overrides this option.
  bool keep_memory = true;
};

// Blocks until all ranks of the job have joined, for at most `join_timeout`. Call it once; the Communicator that it
// returns is an ordinary value. Rank 0 warns of environment variables that begin with REIGEN_ and that Reigen does not
// read. After this call, an Error that the program does not catch is printed and ends the program with the error's exit
// code. Throws Timeout naming the missing ranks, and InvalidArgument if the launcher's variables contradict each other.
Communicator init(const InitOptions& options = {});

using RankFunction = std::function<void(Communicator& world)>;

// Starts `ranks` processes that run `function`, and waits for all of them. Each process runs this program again from
// main() (as Python's spawn does) until it reaches the same call of spawn(). There the process runs `function` and
// exits. So every rank also runs the part of main() before spawn(). spawn() returns when all processes have ended well;
// otherwise it throws Error with the failed rank's exit code and last lines of output.
void spawn(int ranks, const RankFunction& function);

// Runs `function` on `ranks` threads of this process. The ranks find each other through a store in the memory of the
// process. If a rank fails, the other ranks end too, and run_threads() throws the first failure. An exception that is
// not an Error is thrown as an Error that names the rank.
void run_threads(int ranks, const RankFunction& function, const InitOptions& options = {});

}  // namespace reigen
