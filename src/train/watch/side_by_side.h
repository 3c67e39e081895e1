// --train.verify with a mesh. In the first steps every rank also trains a second model, whole, on the whole batch, as
// one process would. After each step the ranks compare what each unit of the model passed on in forward, the gradients
// that reached it in backward, the norm of the gradients and the weights. The first difference ends the run.
//
// State: open() makes the second model; begin_step() trains it and begins to listen to the units of the run's model;
// end_step() compares. After the last step that is to be verified the second model is freed.
// Thread rule: used only by the thread of its rank.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "reigen/data/loader.h"
#include "train/model/trained_model.h"
#include "train/run/run.h"

namespace reigen::train {

class SideBySide {
 public:
  SideBySide(Run& run, TrainedModel& model);
  ~SideBySide();

  // Call it when the model has its first values. Does nothing unless this run is to be verified side by side. Throws
  // InvalidArgument if there is no way to make a second model.
  void open(std::int64_t global_batch);
  // Collective. Call it before the forward of a step.
  void begin_step(const data::Batch& batch);
  // Collective. Call it after the optimizer's step. `norm`: that of the step's gradients, if it is known. Throws Error
  // (exit code 78) on every rank if something differs.
  void end_step(std::optional<double> norm);
  void abandon_step();

 private:
  struct Alone;
  Run& run_;
  TrainedModel& model_;
  std::unique_ptr<Alone> alone_;
};

}  // namespace reigen::train
