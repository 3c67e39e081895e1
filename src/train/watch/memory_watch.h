// Measures how much memory the first steps take in addition to the memory that is held between steps.
// Thread rule: used only by the thread of its rank.
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
  void begin_step(std::int64_t step, const data::Batch& batch, double waited) override;
  void end_phase(Phase phase) override;
  void end_step(std::int64_t step) override;
  // Call it after each forward of a pipeline, whose forwards and backwards are one phase.
  void note_forward();
  void abandon_step() override { counted_.reset(); }

  // Collective. The memory of every rank: the bytes measured during steps, the bytes held between steps, and the
  // bytes that the layout predicts.
  MemoryReport report(const TrainedModel& model, const Communicator& world) const;

 private:
  int counted_steps_ = 0;
  std::optional<tensor::CountedBytes> counted_;
  MemoryUse most_;  // only activations and step are set
};

}  // namespace reigen::train
