// Gradients divided by a factor on their way: what would overflow in the sum, or when it is rounded, does not.
#pragma once

#include "reigen/parallel/strategy.h"

namespace reigen::parallel {

// `strategy` on gradients / factor, its results times factor. Two passes over the gradients; none for a factor of 1.
// Throws InvalidArgument where the strategy is made, unless the factor is finite and above 0.
StrategyFactory predivided(StrategyFactory strategy, double factor);

}  // namespace reigen::parallel
