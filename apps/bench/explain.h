// `reigen bench OP --explain`: which algorithm would run each size, and why. Starts no ranks. Thread rule: one thread.
#pragma once

#include "bench/options.h"

namespace reigen::apps::bench {

// Prints one line for each size. Throws InvalidArgument with exit code 2 when there is no choice of algorithms to
// explain, and the errors of reading the cache of `reigen tune`.
void explain(const BenchOptions& options, int ranks);

}  // namespace reigen::apps::bench
