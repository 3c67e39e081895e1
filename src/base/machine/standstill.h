// Tells whether this process stood still: stopped (SIGSTOP, a suspended job), or without a processor for seconds.
// Thread rule: one thread.
#pragma once

#include <chrono>
#include <utility>

namespace reigen::base {

// The monotonic clock goes on while a process is stopped. A process that waits for other processes must not count the
// time of its own stop as a delay of the others. The others may have been stopped at the same time, and a stopped
// process cannot check whether they are alive.
class Standstill {
 public:
  using Clock = std::chrono::steady_clock;

  // `longest`: the longest time between two calls of look() while the process runs.
  explicit Standstill(Clock::duration longest) : longest_(longest) {}

  // Returns the time since the last call if it is longer than `longest`, else 0.
  Clock::duration look(Clock::time_point now = Clock::now()) {
    const auto since = now - std::exchange(looked_, now);
    return since > longest_ ? since : Clock::duration(0);
  }

 private:
  const Clock::duration longest_;
  Clock::time_point looked_ = Clock::now();
};

}  // namespace reigen::base
