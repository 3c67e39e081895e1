// --train.verify with a mesh. In the first steps every rank also trains a second model, whole, on the whole batch, as
// one process would. In each step the ranks compare what each unit of the model passed on in forward, the gradients
// that reached it in backward, the loss, the gradients of the weights with their norm, and the weights, in the first
// step also before it. The first difference ends the run.
//
// State: open() makes the second model. Then, in each step: begin_step() runs forward and backward of the second model
// and begins to listen to the run's model; before_optimizer() compares units, losses and gradients; end_step() makes
// the second model's optimizer step, and compares weights. After the last step that is to be verified the second model
// is freed. Thread rule: used only by the thread of its rank.
#pragma once

#include <cstdint>
#include <memory>

#include "reigen/data/loader.h"
#include "train/model/trained_model.h"
#include "train/run/run.h"

namespace reigen::train {

class SideBySide {
 public:
  SideBySide(Run& run, TrainedModel& model);
  ~SideBySide();

  // Collective. Call it when the model has its first values. Does nothing unless this run is to be verified side by
  // side. Throws InvalidArgument if there is no way to make a second model.
  void open(std::int64_t global_batch);
  // Collective. Call it before the forward of a step. Returns whether the step is verified.
  bool begin_step(const data::Batch& batch);
  // Collective. Call it when the gradients are averaged, and before the optimizer uses them or looks whether they are
  // finite. `loss` is the sum of this rank's losses over its terms, `terms` the number of terms of all ranks. Throws
  // Error (exit code 78) on every rank if something differs.
  void before_optimizer(double loss, std::int64_t terms);
  // Collective. Call it after the optimizer's step; `skipped` says that the step was left out. Throws as
  // before_optimizer(). Says on rank 0 when all steps are verified.
  void end_step(bool skipped);
  // Frees the second model, because an exception ended the step.
  void abandon();
  // Frees the second model. If not all steps were verified, says how many were.
  void close();

 private:
  struct Alone;
  Run& run_;
  TrainedModel& model_;
  std::unique_ptr<Alone> alone_;
};

}  // namespace reigen::train
