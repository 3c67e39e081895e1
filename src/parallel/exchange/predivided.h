// Divides gradients by a factor before they are exchanged, so that their sum does not overflow, in 16-bit types for
// example.
#pragma once

#include "reigen/parallel/strategy.h"

namespace reigen::parallel {

// Returns a factory of a strategy that applies `strategy` to gradients / factor, and multiplies the results by factor.
// This costs two passes over the gradients, or none for a factor of 1. When the factory is called, it throws
// InvalidArgument if the factor is not finite or not above 0, or if `strategy` does not average gradients.
StrategyFactory predivided(StrategyFactory strategy, double factor);

}  // namespace reigen::parallel
