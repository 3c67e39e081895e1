#include "train/watch/memory_watch.h"

#include <algorithm>

namespace reigen::train {

namespace {

constexpr int kStepsCounted = 3;  // several, because data_parallel forms new buckets after the first step

}  // namespace

void MemoryWatch::begin_step(std::int64_t /*step*/, const data::Batch& /*batch*/, double /*waited*/) {
  if (counted_steps_ < kStepsCounted) counted_.emplace();
}

void MemoryWatch::end_phase(Phase phase) {
  if (!counted_) return;
  if (phase == Phase::kForward) note_forward();
  if (phase == Phase::kBackward) most_.step = std::max(most_.step, counted_->peak());
}

void MemoryWatch::end_step(std::int64_t /*step*/) {
  if (!counted_) return;
  counted_.reset();
  ++counted_steps_;
}

void MemoryWatch::note_forward() {
  if (counted_) most_.activations = std::max(most_.activations, counted_->live());
}

MemoryReport MemoryWatch::report(const TrainedModel& model, const Communicator& world) const {
  MemoryUse use = count_memory(model.module(), model.parallel());
  use.activations = most_.activations;
  use.step = most_.step;
  return gather_memory(use, model.memory_of_layout(), world);
}

}  // namespace reigen::train
