// States that each rank has, in the options of a checkpoint's manifest: "state.NAME.RANK" is the bytes of one rank as
// hexadecimal digits. An empty state has no entry.
// Thread rule: no shared state.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "reigen/comm/communicator.h"

namespace reigen::train {

// Collective: two calls for all states together. `own`: the states of this rank by name; ranks may have other names. On
// every rank `options` has the states of all ranks afterwards.
void keep_states(std::map<std::string, std::string>& options, const std::map<std::string, std::string>& own,
                 const Communicator& world);

// The states of all ranks, by rank; empty if no rank had one. Throws DataError for digits that are none.
std::vector<std::string> states_in(const std::map<std::string, std::string>& options, const std::string& name);

}  // namespace reigen::train
