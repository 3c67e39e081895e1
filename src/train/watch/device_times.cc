#include "train/watch/device_times.h"

#include <algorithm>
#include <chrono>

#include "reigen/train/timeline.h"
#include "tensor/calls.h"

namespace reigen::train {

namespace {

constexpr std::size_t kKnown = 8;  // of() is asked for one of the last steps
constexpr double kMs = 1e-3;       // a millisecond in seconds

}  // namespace

std::unique_ptr<device::Event> DeviceTimes::mark() {
  std::unique_ptr<device::Event> event;
  if (unused_.empty()) {
    event = std::make_unique<device::Event>(run_.device.index(), device::Event::Kind::kTimed);
  } else {
    event = std::move(unused_.back());
    unused_.pop_back();
  }
  event->record(device::handle_of(tensor::current_stream(run_.device)));
  return event;
}

void DeviceTimes::begin_step(std::int64_t step, const data::Batch& /*batch*/, double /*waited*/) {
  if (!run_.device.is_cuda()) return;
  steps_.push_back({.step = step, .place = times_.count()});
  steps_.back().marks.push_back({Phase::kData, mark()});
}

void DeviceTimes::end_phase(Phase phase) {
  if (run_.device.is_cuda() && !steps_.empty()) steps_.back().marks.push_back({phase, mark()});
}

void DeviceTimes::abandon_step() {
  if (!steps_.empty()) steps_.pop_back();
}

void DeviceTimes::take(Step step) {
  PhaseTimes time;
  for (std::size_t i = 1; i < step.marks.size(); ++i) {
    const device::Event& begin = *step.marks[i - 1].event;
    const device::Event& end = *step.marks[i].event;
    const double seconds = end.milliseconds_since(begin) * kMs;
    switch (step.marks[i].phase) {
      case Phase::kData: break;
      case Phase::kForward: time.forward += seconds; break;
      case Phase::kBackward: time.backward += seconds; break;
      case Phase::kGradients:
      case Phase::kLoss:
      case Phase::kOptimizer: time.optimizer += seconds; break;
    }
    if (!origin_) continue;
    const auto at = [&](const device::Event& event) {
      return origin_time_ + static_cast<std::int64_t>(event.milliseconds_since(*origin_) * 1e6);
    };
    spans_.push_back({step.marks[i].phase, at(begin), at(end)});
  }
  if (run_.config.mesh.pp == 1) {
    times_.set_phases(step.place, time);
    known_.emplace_back(step.step, time);
    if (known_.size() > kKnown) known_.pop_front();
  }
  for (Mark& one : step.marks) unused_.push_back(std::move(one.event));
}

std::optional<PhaseTimes> DeviceTimes::of(std::int64_t step) {
  while (!steps_.empty() && steps_.front().step <= step &&
         steps_.front().marks.back().event->is_done("a step on the GPU")) {
    take(std::move(steps_.front()));
    steps_.pop_front();
  }
  const auto found = std::find_if(known_.begin(), known_.end(), [&](const auto& one) { return one.first == step; });
  return found == known_.end() ? std::nullopt : std::optional(found->second);
}

void DeviceTimes::finish() {
  if (steps_.empty()) return;
  tensor::finish_stream_of(run_.device);
  of(steps_.back().step);
}

void DeviceTimes::begin_again() {
  finish();
  steps_.clear();
  known_.clear();
}

void DeviceTimes::begin_spans() {
  if (!run_.device.is_cuda()) return;
  finish();
  origin_ = mark();
  tensor::finish_stream_of(run_.device);
  origin_time_ = Timeline::now();
}

std::vector<DeviceTimes::Span> DeviceTimes::end_spans() {
  finish();
  origin_.reset();
  return std::exchange(spans_, {});
}

}  // namespace reigen::train
