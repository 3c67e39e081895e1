#include "train/watch/memory_watch.h"

#include <algorithm>

#include "tensor/device_memory/device_memory.h"

namespace reigen::train {

namespace {

constexpr int kStepsCounted = 3;  // several, because data_parallel forms new buckets after the first step

void take_most(std::int64_t& most, std::int64_t bytes) { most = std::max(most, bytes); }

// Adds the most that LibTorch's allocator gave out since the last forget_most().
void take_most(MemoryUse& most, const tensor::DeviceMemory& there) {
  take_most(most.allocated, there.most_allocated);
  take_most(most.reserved, there.most_reserved);
}

std::int64_t bytes_on(const at::Device& device, const data::Samples& samples) {
  std::int64_t bytes = 0;
  samples.for_each([&](std::string_view /*name*/, const at::Tensor& tensor) {
    if (tensor.device() == device) bytes += static_cast<std::int64_t>(tensor.nbytes());
  });
  return bytes;
}

}  // namespace

void MemoryWatch::begin_step(std::int64_t /*step*/, const data::Batch& batch, double /*waited*/) {
  if (counted_steps_ >= kStepsCounted) return;
  is_counted_ = true;
  if (run_.device.is_cpu()) {
    counted_.emplace();
    return;
  }
  const config::DataConfig& data = run_.config.data;
  const std::int64_t in_advance = data.workers == 0 ? 0 : data.device_prefetch;
  take_most(most_.batches, (1 + in_advance) * bytes_on(run_.device, batch));
  if (const auto there = tensor::device_memory(run_.device)) {
    if (counted_steps_ > 0) take_most(most_, *there);
    tensor::forget_most(run_.device);
    before_ = there->allocated;
  }
}

void MemoryWatch::end_phase(Phase phase) {
  if (phase == Phase::kForward) note_forward();
  if (phase != Phase::kBackward) return;
  if (counted_) take_most(most_.step, counted_->peak());
  if (!before_) return;
  const std::int64_t most = tensor::device_memory(run_.device)->most_allocated;
  if (most <= most_.in_steps) return;
  most_.in_steps = most;
  most_.step = most - *before_;
}

void MemoryWatch::end_step(std::int64_t /*step*/) {
  if (!is_counted_) return;
  end_count();
  ++counted_steps_;
}

void MemoryWatch::end_count() {
  is_counted_ = false;
  counted_.reset();
  before_.reset();
}

void MemoryWatch::note_forward() {
  if (counted_) take_most(most_.activations, counted_->live());
  if (before_) take_most(most_.activations, tensor::device_memory(run_.device)->allocated - *before_);
}

MemoryReport MemoryWatch::report(const TrainedModel& model, const Communicator& world) const {
  MemoryUse use = count_memory(model.module(), model.parallel());
  use.activations = most_.activations;
  use.step = most_.step;
  if (const auto there = tensor::device_memory(run_.device)) {
    use.batches = most_.batches;
    use.in_steps = most_.in_steps;
    use.allocated = most_.allocated;
    use.reserved = most_.reserved;
    take_most(use, *there);
    use.fragmented = there->fragmented;
  } else {
    use.of_the_group = 0;
  }
  return gather_memory(use, model.memory_of_layout(), world);
}

}  // namespace reigen::train
