// Makes the options of a group from InitOptions and the environment.
#pragma once

#include "reigen/comm/options.h"
#include "reigen/runtime/init.h"

namespace reigen {

// The options of a program's world group, without rank, size and store. If `options` does not set an option, the
// option's environment variable (REIGEN_COMM_BACKEND and so on) sets it; if the variable is not set either, the option
// has its default. Throws InvalidArgument, naming the variable, if a variable has an invalid value.
comm::GroupOptions group_options(const InitOptions& options);

// Warns of environment variables with the prefix REIGEN_ that no code reads, and names the variables that were probably
// meant.
void warn_of_unknown_variables();

}  // namespace reigen
