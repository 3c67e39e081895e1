// The cheapest clock of this processor: a counter that runs at the same speed on all cores. Each kind of processor has
// its own source file; CMake chooses one.
#pragma once

#include <cstdint>
#include <ctime>

namespace reigen::flight {

// Whether the processor has such a counter. False also for a counter that changes its speed or stops. Without a counter
// the recorder reads the system's clock.
bool has_counter();
std::uint64_t read_counter();

inline std::int64_t system_nanoseconds(clockid_t clock) {
  timespec now{};
  ::clock_gettime(clock, &now);
  return static_cast<std::int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

}  // namespace reigen::flight
