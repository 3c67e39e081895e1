// Which ranks share a machine: those that can open each other's memory, whatever host names and variables say. Ranks
// with different GroupOptions::machine_id are on different machines.
#pragma once

#include <vector>

#include "reigen/comm/options.h"

namespace reigen::comm::hierarchical {

// The ranks of every machine, ascending; machines in the order of their first ranks.
using Machines = std::vector<std::vector<int>>;

// The same on every rank. Blocks until all are there. Throws Timeout naming who is not.
Machines find_machines(const GroupOptions& options);

// Pure: reaches[a][b] says that rank a can open what rank b shares. A rank belongs to the first machine all of whose
// ranks it reaches and is reached by.
Machines group_by_reach(const std::vector<std::vector<bool>>& reaches);

}  // namespace reigen::comm::hierarchical
