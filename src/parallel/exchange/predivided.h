// Divides gradients by a factor before they are exchanged, so that their sum, or its rounding, does not overflow.
#pragma once

#include "reigen/parallel/strategy.h"

namespace reigen::parallel {

// Applies `strategy` to gradients / factor, and multiplies its results by factor. This costs two passes over the
// gradients, or none for a factor of 1. Making the strategy throws InvalidArgument if the factor is not finite or not
// above 0, or if `strategy` does not average gradients.
StrategyFactory predivided(StrategyFactory strategy, double factor);

}  // namespace reigen::parallel
