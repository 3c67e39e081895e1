// What this machine can do at best for an operation: plain copies and sums over private memory, without any
// synchronisation inside. Thread rule: one caller a rank; every rank calls with the same problem.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>

#include "bench/operation.h"

namespace reigen::apps::bench {

// Slowest rank's seconds for one run of the function, at the median: all ranks at once, in batches long enough for the
// clock.
double time_together(const Communicator& world, const std::function<void(std::size_t iteration)>& function);

// Seconds that the least traffic of the operation takes here; the better of
//   a copy      each rank copies (read + written) / 2 bytes, and
//   a sum       (reductions) each rank reduces its share of P inputs and writes it to every output, in one pass; in
//               place over the inputs, elsewhere through the caches or past them, whichever is faster.
// On a device's memory: a copy, at the speed of a long one.
// Empty when the operation moves nothing. `cold`: through buffers that no cache holds, as the operation's own.
std::optional<double> measure_bound(const Communicator& world, const Problem& problem, bool cold);

}  // namespace reigen::apps::bench
