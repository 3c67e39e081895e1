// Divides gradients by a factor while they travel, so that their sum, or its rounding, does not overflow.
#pragma once

#include "reigen/parallel/strategy.h"

namespace reigen::parallel {

// Applies `strategy` to gradients / factor, and multiplies its results by factor. It costs two passes over the
// gradients; none for a factor of 1. When the strategy is made, it throws InvalidArgument unless the factor is finite
// and above 0, and where a strategy does not average gradients.
StrategyFactory predivided(StrategyFactory strategy, double factor);

}  // namespace reigen::parallel
