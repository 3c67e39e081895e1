// Says how many workers make batches as fast as the loop uses them, from the loop's waits.
//
// It looks at some batches at a time. If the loop waited for more than a twentieth of the time, the workers made
// batches in the whole time, and the loop used them in the time without the waits. So the need is the number of workers
// times the whole time, divided by the time without the waits; a step at most doubles the number. The first batch does
// not count, because no worker could begin it earlier.
// Thread rule: used by one thread.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>

namespace reigen::data {

class WorkerNeed {
 public:
  using Time = std::chrono::steady_clock::time_point;

  explicit WorkerNeed(int most) : most_(most) {}

  // The loop asked for a batch at `asked`, and `workers` workers had it at `came`. Returns how many workers there
  // should be: at least `workers`.
  int after(Time asked, Time came, int workers) {
    constexpr int kBatches = 8;           // that are looked at together
    constexpr double kLittleWait = 0.05;  // of the time
    if (batches_++ == 0) {
      begin_ = came;
      waited_ = {};
      return workers;
    }
    waited_ += came - asked;
    if (batches_ <= kBatches) return workers;
    batches_ = 1;
    const std::chrono::duration<double> whole = came - begin_;
    const std::chrono::duration<double> waited = waited_;
    begin_ = came;
    waited_ = {};
    if (waited <= kLittleWait * whole || workers >= most_) return workers;
    const double used = std::max(1 - waited / whole, 0.5);
    return std::clamp(static_cast<int>(std::ceil(workers / used)), workers + 1, most_);
  }

 private:
  const int most_;
  int batches_ = 0;
  Time begin_ = {};
  std::chrono::steady_clock::duration waited_ = {};
};

}  // namespace reigen::data
