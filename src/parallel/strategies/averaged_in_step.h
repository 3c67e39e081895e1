// For Shard::kGradients: gradients stay where backward put them, in memory that all ranks read, and the step of each
// rank averages its share. The reducer's exchange of flags, behind backward, is where ranks wait for each other.
#pragma once

#include "reigen/parallel/strategy.h"

namespace reigen::parallel {

StrategyFactory averaged_in_step();

}  // namespace reigen::parallel
