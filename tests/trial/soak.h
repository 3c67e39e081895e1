// Groups made and left again and again, and random operations over three groups that overlap, several in flight, with
// the results compared and what the process holds looked at. Thread rule: the communicator's.
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
  int seconds = 0;  // more than 0: instead of `operations`
  std::function<Communicator(const std::string& name)> make_group = {};
  // Called at the first wrong value.
  std::function<void(const std::string&)> on_wrong = {};
};

// The looks of a rank, all ranks of a process being at rest.
struct Soaked {
  std::uint64_t count = 0;  // cycles or operations
  std::vector<Resources> looks = {};
};

Soaked soak_cycles(Communicator& world, const SoakOptions& options);
Soaked soak_operations(Communicator& world, const SoakOptions& options);

}  // namespace reigen::trial
