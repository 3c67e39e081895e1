// States that each rank has, in the options of a checkpoint's manifest: "state.NAME.RANK" is the bytes of one rank as
// hexadecimal digits. An empty state has no entry.
// Thread rule: no shared state.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "reigen/comm/communicator.h"

namespace reigen::train {

// Collective. Adds the states of all ranks. On every rank `options` has them afterwards.
void keep_states(std::map<std::string, std::string>& options, const std::string& name, const std::string& own,
                 const Communicator& world);

// The states of all ranks, by rank; empty if no rank had one. Throws DataError for digits that are none.
std::vector<std::string> states_in(const std::map<std::string, std::string>& options, const std::string& name);

}  // namespace reigen::train
