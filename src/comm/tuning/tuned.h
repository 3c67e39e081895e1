// Finds the rules of a group whose option `algorithms` is "tuned". Rank 0 reads the file that `reigen tune` has written
// for the backend and the number of ranks. It sends the rules to the other ranks, so that all ranks choose alike.
#pragma once

#include <string>

#include "comm/call/algorithm_choice.h"
#include "reigen/comm/options.h"

namespace reigen::comm::tuning {

// Returns options.algorithms. If that is "tuned", returns the rules from the file of `reigen tune`, but no rules for a
// group of one rank. Every rank of the group calls this function once. For "tuned" it blocks until rank 0 has called
// it. Throws InvalidArgument when nothing was tuned for this backend and number of ranks, DataError when the file is
// not a table for them, and IoError when the file cannot be read. If rank 0 gets such an error, all ranks throw it.
std::string rules_in_force(const GroupOptions& options, Family family);

}  // namespace reigen::comm::tuning
