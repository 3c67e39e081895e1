// Finds which ranks share a machine. Ranks share a machine if they can open each other's memory, whatever host names
// and environment variables say. Ranks with different GroupOptions::machine_id are on different machines.
#pragma once

#include <vector>

#include "reigen/comm/options.h"

namespace reigen::comm::hierarchical {

// The ranks of every machine, in ascending order. The machines are in the order of their first ranks.
using Machines = std::vector<std::vector<int>>;

// Returns the same result on every rank. Blocks until all ranks are there. Throws Timeout naming the missing ranks.
Machines find_machines(const GroupOptions& options);

// A pure function. reaches[a][b] says whether rank a can open the memory that rank b shares. A rank belongs to the
// first machine where it reaches every rank and every rank reaches it.
Machines group_by_reach(const std::vector<std::vector<bool>>& reaches);

}  // namespace reigen::comm::hierarchical
