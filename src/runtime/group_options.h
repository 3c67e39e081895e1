// What InitOptions and the environment make of a group's options.
#pragma once

#include "reigen/comm/options.h"
#include "reigen/runtime/init.h"

namespace reigen {

// Of the world of a program; without rank, size and store. What the options leave open comes from REIGEN_COMM_BACKEND
// and its siblings, what these leave open has its usual value. Throws InvalidArgument, naming the variable.
comm::GroupOptions group_options(const InitOptions& options);

// Says once which variables with our prefix nobody reads, and what they probably should be.
void warn_of_unknown_variables();

}  // namespace reigen
