// The arguments and the commands of the program. Thread rule: a command runs on the thread of its rank.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "reigen/comm/communicator.h"
#include "trial/algorithms.h"

namespace reigen::trial {

inline constexpr const char* kJob = "reigen-trial";

struct Arguments {
  std::string command = {};
  int rank = -1;  // -1: all ranks as threads
  int ranks = 2;
  std::string host = "127.0.0.1";  // of the store
  int port = 0;
  std::string job = kJob;
  std::string backend = "shared_memory";
  std::string network = "tcp";
  std::uint64_t seed = 1;
  bool quick = false;
  std::string algorithm = {};  // for every operation that has it
  int machines = 0;            // rank r plays a rank of machine r % machines; 0: all ranks are on one machine
  std::string row = "death";   // of the fault matrix
  std::uint64_t operations = 100000;
  int cycles = 1000;
  int seconds = 0;  // soak: duration, instead of `operations`; fault: time to join, or duration of work_for
};

Arguments parse(const std::vector<std::string>& words);

struct Self {
  const Arguments& arguments;
  int rank;
  std::shared_ptr<store::Store> store;

  comm::GroupOptions group(const std::string& name) const {
    return {.rank = rank,
            .size = arguments.ranks,
            .store = store,
            .name = name,
            .backend = arguments.backend,
            .network = arguments.network,
            .machine_id = arguments.machines == 0 ? "" : std::to_string(rank % arguments.machines),
            .algorithms = rules_of(arguments.algorithm)};
  }
};

// Returns the exit code.
using Command = int (*)(const Self& self);
Command find_command(const std::string& name);

int grid_command(const Self& self);
int soak_command(const Self& self);
int fault_command(const Self& self);

}  // namespace reigen::trial
