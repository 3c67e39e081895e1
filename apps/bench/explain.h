// `reigen bench OP --explain`: which algorithm would run each size, and why. Starts no ranks. Thread rule: none.
#pragma once

#include "bench/options.h"

namespace reigen::apps::bench {

// Prints a line a size. Throws InvalidArgument (2) where there is nothing to choose; what the cache of `reigen tune`
// throws.
void explain(const BenchOptions& options, int ranks);

}  // namespace reigen::apps::bench
