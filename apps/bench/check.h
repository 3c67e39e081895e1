// Inputs whose results are exact, and the comparison with the formula. Values are a hash of rank and index, so that a
// block in a wrong place is seen. Buffers may be a device's: what is written and read travels by the communicator's own
// copies. Thread rule: the communicator's.
#pragma once

#include <cstddef>

#include "bench/operation.h"

namespace reigen::apps::bench {

// Writes this rank's input, and nonsense to what the operation must overwrite.
void fill(const Communicator& world, const Problem& problem, const Place& place);

// After one call on filled memory: elements of the output (and, out of place, of the input) that are not as they must
// be, on this rank.
std::size_t count_wrong(const Communicator& world, const Problem& problem, const Place& place);

// A barrier moves nothing: collective, 1 if this rank left before the last one came. The clock is one machine's.
std::size_t count_wrong_barrier(const Communicator& world);

}  // namespace reigen::apps::bench
