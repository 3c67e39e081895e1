// How a measuring command of `reigen` becomes several processes. A process that a user starts alone starts the ranks,
// which run the same program with the same arguments. A process that a launcher starts is one of the ranks. Thread
// rule: one thread.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "reigen_commands.h"

namespace reigen::apps::bench {

struct Ranks {
  int count = 2;
  bool started = false;  // a launcher started this process as one of the ranks
};

// `wanted`: the value of -n, if given. Throws InvalidArgument with exit code 2 when a launcher has started a different
// number of ranks.
Ranks find_ranks(std::optional<int> wanted);

// Runs `reigen COMMAND ARGUMENTS` as `ranks` processes and returns the exit code. `on_gpu`: the ranks use GPUs, which
// they may share.
int start_ranks(const std::string& command, const Arguments& arguments, int ranks, std::size_t memory_per_rank,
                bool on_gpu = false);

}  // namespace reigen::apps::bench
