// Where a group's rules come from when it asks for "tuned": rank 0 reads what `reigen tune` has written for the backend
// and the number of ranks, and tells the others, so that all choose alike.
#pragma once

#include <string>

#include "comm/call/algorithm_choice.h"
#include "reigen/comm/options.h"

namespace reigen::comm::tuning {

// options.algorithms, or the rules for "tuned". A group of one has none. Every rank of the group calls it once; blocks
// until rank 0 has. Throws on all ranks: InvalidArgument when nothing was tuned for this, what read_cache() throws.
std::string rules_in_force(const GroupOptions& options, Family family);

}  // namespace reigen::comm::tuning
