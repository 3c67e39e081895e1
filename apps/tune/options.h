// The command line of `reigen tune`. Thread rule: values.
#pragma once

#include <optional>

#include "comm/call/algorithm_choice.h"
#include "reigen_commands.h"

namespace reigen::apps::tune {

struct TuneOptions {
  std::optional<int> ranks;  // -n, if given
  comm::Family family = comm::Family::kSharedMemory;
  double seconds = 1;    // of probing, about
  bool explain = false;  // say what is in force, and measure nothing
};

// Empty: --help, which is printed then. Throws InvalidArgument (2).
std::optional<TuneOptions> parse_tune_options(const Arguments& arguments);

}  // namespace reigen::apps::tune
