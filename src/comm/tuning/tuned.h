// Finds the rules of a group that asks for "tuned". Rank 0 reads the table that `reigen tune` has written for the
// backend and the number of ranks, and sends the rules to the other ranks, so that all ranks make the same choices.
#pragma once

#include <string>

#include "comm/call/algorithm_choice.h"
#include "reigen/comm/options.h"

namespace reigen::comm::tuning {

// Returns options.algorithms, or the rules for "tuned"; a group of one rank has no tuned rules. Every rank of the group
// calls it once. For "tuned" it blocks until rank 0 has called it. Throws on all ranks: InvalidArgument when nothing
// was tuned for this backend and number of ranks, DataError when the file is not a table for them, IoError when the
// file cannot be read. All ranks throw the error of rank 0.
std::string rules_in_force(const GroupOptions& options, Family family);

}  // namespace reigen::comm::tuning
