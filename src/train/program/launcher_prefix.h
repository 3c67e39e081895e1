// How a user starts the ranks of a job again that another launcher started.
#pragma once

#include <string>

#include "reigen/launch/environment.h"

namespace reigen::train {

// What stands before the program's own words: "srun -N 2 -n 4 ", "mpirun -n 2 ", or a word to the reader where a
// command would say too little. Empty where the program starts its ranks itself.
std::string launcher_prefix(const launch::Environment& environment);

}  // namespace reigen::train
