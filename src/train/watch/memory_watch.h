// Measures how much memory the first steps take in addition to the memory that is held between steps. On the CPU it
// counts what this thread asks for; on a GPU it asks LibTorch's allocator. Thread rule: used only by the thread of its
// rank.
#pragma once

#include <cstdint>
#include <optional>

#include "tensor/hooks/counted_bytes.h"
#include "train/model/memory_use.h"
#include "train/model/trained_model.h"
#include "train/run/run.h"
#include "train/watch/watcher.h"

namespace reigen::train {

class MemoryWatch : public Watcher {
 public:
  explicit MemoryWatch(const Run& run) : run_(run) {}
  void begin_step(std::int64_t step, const data::Batch& batch, double waited) override;
  void end_phase(Phase phase) override;
  void end_step(std::int64_t step) override;
  // Call it after each forward of a pipeline, whose forwards and backwards are one phase.
  void note_forward();
  void abandon_step() override { end_count(); }

  // Collective. The memory of every rank: the bytes measured during steps, the bytes held between steps, and the
  // bytes that the layout predicts.
  MemoryReport report(const TrainedModel& model, const Communicator& world) const;

 private:
  void end_count();

  const Run& run_;
  int counted_steps_ = 0;
  std::optional<tensor::CountedBytes> counted_;  // in a counted step on the CPU
  bool is_counted_ = false;
  std::optional<std::int64_t> before_;  // in a counted step on a GPU: what the allocator had given out before
  MemoryUse most_;                      // without parameters, gradients, optimizer and buffers
};

}  // namespace reigen::train
