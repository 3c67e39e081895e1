// Makes and leaves groups again and again, and runs random operations over three groups that overlap, several in
// flight. Compares the results and reads the resources of the process. Thread rule: the communicator's.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "reigen/comm/communicator.h"
#include "trial/resources.h"

namespace reigen::trial {

struct SoakOptions {
  std::uint64_t seed = 1;
  std::uint64_t operations = 100000;
  int cycles = 1000;
  int seconds = 0;  // if more than 0: the duration, instead of `operations`
  std::function<Communicator(const std::string& name)> make_group = {};
  // Called at the first wrong value.
  std::function<void(const std::string&)> on_wrong = {};
};

// The resources that a rank has read, each time while all ranks of the process were idle.
struct Soaked {
  std::uint64_t count = 0;  // cycles or operations
  std::vector<Resources> looks = {};
};

Soaked soak_cycles(Communicator& world, const SoakOptions& options);
Soaked soak_operations(Communicator& world, const SoakOptions& options);

}  // namespace reigen::trial
