// Finds the words with which a user starts the ranks of a job again, if a launcher other than Reigen's started them.
#pragma once

#include <string>

#include "reigen/launch/environment.h"

namespace reigen::train {

// Returns the words that come before the program's own words: "srun -N 2 -n 4 ", "mpirun -n 2 ", or a note to the user
// if a command would not be enough. Empty if the program starts its ranks itself.
std::string launcher_prefix(const launch::Environment& environment);

}  // namespace reigen::train
