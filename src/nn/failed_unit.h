// Names the unit of the model in whose forward an exception came up, for the error of a step.
// Thread rule: each thread has a name of its own.
#pragma once

#include <string>

namespace reigen::nn {

// The innermost unit in whose forward this thread's first exception since forget_failed_unit() came up; empty if none
// did.
const std::string& failed_unit();
void forget_failed_unit();

}  // namespace reigen::nn
