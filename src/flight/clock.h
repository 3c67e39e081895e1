// The cheapest clock of this processor: a counter that runs at one speed on all cores. One file for each processor;
// CMake picks.
#pragma once

#include <cstdint>
#include <ctime>

namespace reigen::flight {

// False where the processor has none, or one that changes its speed or stops: then the system's clock is read.
bool has_counter();
std::uint64_t read_counter();

inline std::int64_t system_nanoseconds(clockid_t clock) {
  timespec now{};
  ::clock_gettime(clock, &now);
  return static_cast<std::int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

}  // namespace reigen::flight
