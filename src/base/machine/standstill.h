// Whether this process stood still: stopped (SIGSTOP, a suspended job), or without a processor for seconds.
// Thread rule: one thread.
#pragma once

#include <chrono>
#include <utility>

namespace reigen::base {

// The monotonic clock goes on while a process is stopped. Whoever waits for other processes must not hold that time
// against them: they may have been stopped too, and nobody looked.
class Standstill {
 public:
  using Clock = std::chrono::steady_clock;

  // `longest`: what no two looks are apart while the process runs.
  explicit Standstill(Clock::duration longest) : longest_(longest) {}

  // The time since the last look if it is more than that, else 0.
  Clock::duration look(Clock::time_point now = Clock::now()) {
    const auto since = now - std::exchange(looked_, now);
    return since > longest_ ? since : Clock::duration(0);
  }

 private:
  const Clock::duration longest_;
  Clock::time_point looked_ = Clock::now();
};

}  // namespace reigen::base
