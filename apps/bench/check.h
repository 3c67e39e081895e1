// Inputs whose results are exact, and the comparison of outputs with the operation's formula. Values are a hash of rank
// and index, so that a block in a wrong place is noticed. Buffers may be in a device's memory: device::copy then copies
// their contents to and from the host. Thread rule: the communicator's.
#pragma once

#include <cstddef>

#include "bench/operation.h"

namespace reigen::apps::bench {

// Writes this rank's input, and wrong values to the memory that the operation must overwrite.
void fill(const Communicator& world, const Problem& problem, const Place& place);

// To be called after one call of the operation on memory that fill() has written. Returns the number of wrong elements
// in this rank's output. If the call is not in place, it also counts the changed elements of the input.
std::size_t count_wrong(const Communicator& world, const Problem& problem, const Place& place);

// For the operation barrier, which moves no data. Collective: makes a barrier. Returns 1 if this rank left the barrier
// before the last rank entered it, else 0. All ranks must be on one machine, because their clocks are compared.
std::size_t count_wrong_barrier(const Communicator& world);

}  // namespace reigen::apps::bench
