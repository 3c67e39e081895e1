// A point on the monotonic clock by which something must have happened. Changes of the wall clock have no effect.
#pragma once

#include <chrono>

namespace reigen {

class Deadline {
 public:
  using Clock = std::chrono::steady_clock;

  static Deadline never() { return Deadline(Clock::time_point::max()); }
  static Deadline at(Clock::time_point when) { return Deadline(when); }
  // A negative duration counts as zero. A duration that ends after the clock's last time point gives never().
  static Deadline after(std::chrono::nanoseconds duration) {
    const auto now = Clock::now();
    if (duration.count() <= 0) return Deadline(now);
    if (duration > Clock::time_point::max() - now) return never();
    return Deadline(now + duration);
  }

  bool is_never() const { return when_ == Clock::time_point::max(); }
  bool expired() const { return !is_never() && Clock::now() >= when_; }
  // Returns the time left, at least zero and at most `cap`. It serves as the time limit of a system call that sleeps.
  std::chrono::nanoseconds remaining(std::chrono::nanoseconds cap) const {
    if (is_never()) return cap;
    const auto left = when_ - Clock::now();
    if (left.count() <= 0) return std::chrono::nanoseconds(0);
    return left < cap ? std::chrono::nanoseconds(left) : cap;
  }
  Clock::time_point when() const { return when_; }

 private:
  explicit Deadline(Clock::time_point when) : when_(when) {}
  Clock::time_point when_;
};

}  // namespace reigen
