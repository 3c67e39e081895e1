// The command line of `reigen tune`. Thread rule: plain values.
#pragma once

#include <optional>

#include "comm/call/algorithm_choice.h"
#include "reigen_commands.h"

namespace reigen::apps::tune {

struct TuneOptions {
  std::optional<int> ranks;  // -n, if given
  comm::Family family = comm::Family::kSharedMemory;
  double seconds = 1;    // about how long to measure
  bool explain = false;  // only print which algorithms are taken and why
};

// Returns nullopt for --help, after printing the help. Throws InvalidArgument with exit code 2 for a wrong command
// line.
std::optional<TuneOptions> parse_tune_options(const Arguments& arguments);

}  // namespace reigen::apps::tune
