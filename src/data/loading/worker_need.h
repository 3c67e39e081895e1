// Says how many workers make batches as fast as a loop uses them, from the loop's waits.
//
// It looks at some batches at a time. If the loop waited for more than a twentieth of the time, the workers made
// batches in the whole time, and the loop used them in the time without the waits. So the need is the number of workers
// times the whole time, divided by the time without the waits; a step at most doubles the number. More workers that
// make batches no faster twice in a row (a slow disk, no free core) are the last that it asks for. The first batch of
// an epoch does not count, because no worker could begin it earlier. Thread rule: any thread. Epochs of one loader
// share it.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <mutex>

namespace reigen::data {

class WorkerNeed {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Duration = std::chrono::duration<double>;

  explicit WorkerNeed(int most) : most_(most) {}

  // The loop asked for a batch at `asked`, and `workers` workers had it at `came`. Returns how many workers there
  // should be: at least `workers`.
  int after(Time asked, Time came, int workers, bool is_first_of_epoch) {
    const std::lock_guard lock(mutex_);
    if (!is_first_of_epoch) {
      whole_ += came - last_;
      waited_ += came - asked;
      ++batches_;
    }
    last_ = came;
    if (batches_ < kBatches) return workers;
    const Duration a_batch = whole_ / batches_;
    const Duration a_wait = waited_ / batches_;
    batches_ = 0;
    whole_ = waited_ = Duration(0);
    if (has_grown_) fruitless_ = a_batch > kGain * before_ ? fruitless_ + 1 : 0;
    before_ = a_batch;
    const bool waits = a_wait > kLittleWait * a_batch && a_wait > kShortWait;
    has_grown_ = waits && workers < most_ && fruitless_ < kFruitless;
    if (!has_grown_) return workers;
    const double used = std::max(1 - a_wait / a_batch, 0.5);
    return std::clamp(static_cast<int>(std::ceil(workers / used)), workers + 1, most_);
  }

 private:
  static constexpr int kBatches = 8;                                      // that are looked at together
  static constexpr double kLittleWait = 0.05;                             // of the time
  static constexpr Duration kShortWait = std::chrono::microseconds(100);  // as long as a thread takes to wake up
  static constexpr double kGain = 0.97;
  static constexpr int kFruitless = 2;

  const int most_;
  std::mutex mutex_;
  Time last_ = {};
  int batches_ = 0;
  Duration whole_{0};
  Duration waited_{0};
  Duration before_{0};  // a batch took it when the number was looked at last
  bool has_grown_ = false;
  int fruitless_ = 0;
};

}  // namespace reigen::data
