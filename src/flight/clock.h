// The cheapest clock of this processor: a counter that runs at one speed on all cores. One file for each processor;
// CMake picks.
#pragma once

#include <cstdint>

namespace reigen::flight {

// False where the processor has none, or one that changes its speed or stops: then the system's clock is read.
bool has_counter();
std::uint64_t read_counter();

}  // namespace reigen::flight
