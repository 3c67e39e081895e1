// How a command of `reigen` that measures becomes several processes: started alone it starts its ranks, this program
// with the same words; under a launcher it is one of them. Thread rule: none.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "reigen_commands.h"

namespace reigen::apps::bench {

struct Ranks {
  int count = 2;
  bool started = false;  // by a launcher: this process is one of them
};

// `wanted`: -n, if given. Throws InvalidArgument (2) when a launcher has started another number.
Ranks find_ranks(std::optional<int> wanted);

// Runs `reigen COMMAND ARGUMENTS` as so many processes and gives the exit code.
int start_ranks(const std::string& command, const Arguments& arguments, int ranks, std::size_t memory_per_rank);

}  // namespace reigen::apps::bench
