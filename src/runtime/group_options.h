// Makes the options of a group from InitOptions and the environment.
#pragma once

#include "reigen/comm/options.h"
#include "reigen/runtime/init.h"

namespace reigen {

// The options of the world of a program, without rank, size and store. An option that `options` leaves open comes
// from its variable (REIGEN_COMM_BACKEND and so on); an option without a variable there either has its default.
// Throws InvalidArgument, naming the variable, if a variable has an invalid value.
comm::GroupOptions group_options(const InitOptions& options);

// Warns of environment variables with the prefix REIGEN_ that nobody reads, and names the variables that were
// probably meant.
void warn_of_unknown_variables();

}  // namespace reigen
