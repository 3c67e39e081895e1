// The durations of the steps, and of the phases of each step.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <vector>

namespace reigen::train {

// Seconds of a step on a GPU, without the data.
struct PhaseTimes {
  double forward = 0;
  double backward = 0;
  double optimizer = 0;
};

// Durations in seconds.
struct StepTime {
  double step = 0;
  double data = 0;
  double forward = 0;
  double backward = 0;
  double exposed = 0;
  double optimizer = 0;
};

class Stopwatch {
 public:
  using Clock = std::chrono::steady_clock;

  // Returns the seconds from the last call (at first, from construction) to this call.
  double lap() {
    const auto now = Clock::now();
    const double seconds = std::chrono::duration<double>(now - last_).count();
    last_ = now;
    return seconds;
  }

 private:
  Clock::time_point last_ = Clock::now();
};

// The times of all steps of one run of the loop. Gives means over the steps after the warm-up, and the median time of a
// whole step.
class StepTimes {
 public:
  void add(const StepTime& time, std::int64_t samples, std::int64_t terms) {
    times_.push_back(time);
    samples_ += samples;
    terms_ += terms;
    seconds_ += time.step;
  }

  // Replaces the host's times of the phases of a step by those of the GPU. `place`: the number of steps before it.
  void set_phases(std::size_t place, const PhaseTimes& phases) {
    if (place >= times_.size()) return;  // the step has failed
    times_[place].forward = phases.forward;
    times_[place].backward = phases.backward;
    times_[place].optimizer = phases.optimizer;
  }

  // The first steps warm up caches, memory and threads. mean() and median_step() leave out ten of them, or a quarter of
  // the steps of a short run.
  std::size_t warmup() const { return std::min<std::size_t>(10, times_.size() / 4); }

  StepTime mean() const {
    StepTime sum;
    const std::size_t first = warmup();
    const auto count = static_cast<double>(times_.size() - first);
    if (times_.empty()) return sum;
    for (std::size_t i = first; i < times_.size(); ++i) {
      sum.step += times_[i].step / count;
      sum.data += times_[i].data / count;
      sum.forward += times_[i].forward / count;
      sum.backward += times_[i].backward / count;
      sum.exposed += times_[i].exposed / count;
      sum.optimizer += times_[i].optimizer / count;
    }
    return sum;
  }

  double median_step() const {
    if (times_.empty()) return 0;
    std::vector<double> steps;
    for (std::size_t i = warmup(); i < times_.size(); ++i) steps.push_back(times_[i].step);
    const auto middle = steps.begin() + static_cast<std::ptrdiff_t>(steps.size() / 2);
    std::nth_element(steps.begin(), middle, steps.end());
    return *middle;
  }

  std::size_t count() const { return times_.size(); }
  // The mean number of terms of the loss in a sample: of tokens in a text, 1 in most other data.
  double terms_of_sample() const {
    return samples_ > 0 ? static_cast<double>(terms_) / static_cast<double>(samples_) : 0;
  }
  double overall_samples_per_s() const { return seconds_ > 0 ? static_cast<double>(samples_) / seconds_ : 0; }

 private:
  std::vector<StepTime> times_;
  std::int64_t samples_ = 0;
  std::int64_t terms_ = 0;
  double seconds_ = 0;
};

}  // namespace reigen::train
