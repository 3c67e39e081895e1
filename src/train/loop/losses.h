// Adds up the losses of all ranks in each step. With some strategies each rank steps with its own gradients. Then one
// call adds up the losses of several steps, so that the ranks do not wait for each other in each step. Rank 0 writes
// and shows the losses. Thread rule: used only by the thread of its rank. All ranks call the functions marked
// "Collective", in the same order.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "reigen/data/loader.h"
#include "train/files/step_lines.h"
#include "train/model/trained_model.h"
#include "train/optimizer/optimization.h"
#include "train/run/callbacks.h"
#include "train/run/run.h"
#include "train/run/step_times.h"
#include "train/start/run_data.h"

namespace reigen::train {

class Losses {
 public:
  Losses(Run& run, const RunData& data, const TrainedModel& model, StepLines& lines, Callbacks& callbacks)
      : run_(run), data_(data), model_(model), lines_(lines), callbacks_(callbacks) {}

  // If each rank steps with its own gradients, the ranks wait for each other at least once in this many steps.
  static constexpr std::int64_t kTogether = 16;

  // Collective. Returns the loss of the global batch. `sum` is the sum of this rank's losses over its terms (samples,
  // or tokens of texts). Sets run.stop if any rank requests a stop, and sets gradients.finite to whether the gradients
  // of all ranks are finite.
  double add_up(double sum, Optimization::Gradients& gradients, const data::Batch& batch);

  struct Step {
    double loss = 0;  // the loss of the global batch; this rank's sum over its terms if each rank has own gradients
    std::optional<double> grad_norm = {};
    bool skipped = false;
  };
  // A step whose loss may not be known yet.
  struct Noted {
    std::int64_t step = 0;  // number of the step, counted from 1
    double loss = 0;
    std::int64_t terms = 0;
    StepMetrics metrics = {};  // set on rank 0 only, except for .grad_norm, which every rank may set
    std::string order = {};    // on rank 0 only: the line for data.dump_order
  };
  // Makes the record of a step. Call it after the step was counted, so that run.done is the number of this step.
  Noted noted(const Step& step, const data::Batch& batch, const StepTime& time) const;
  // Takes what the task has logged in a step. Throws InvalidArgument for a name that is a key of each line.
  void take_logged(Noted& one, NamedValues logged);
  // Writes and shows the loss of a step, or keeps it until add_up_late() if each rank steps with its own gradients.
  void note(Noted one);
  // Writes and shows the loss of a step. `one.loss` must be the loss of the global batch.
  void record(Noted& one);
  // Collective. Adds up over all ranks the losses of the steps that note() has kept, and writes and shows them. Does
  // nothing if note() has kept none.
  void add_up_late();
  // Collective. Writes the figures that the task has logged in this epoch, over all ranks. Call it after the last step
  // of the epoch was noted.
  void end_epoch(std::int64_t epoch);

 private:
  Run& run_;
  const RunData& data_;
  const TrainedModel& model_;
  StepLines& lines_;
  Callbacks& callbacks_;
  std::vector<Noted> late_;
  std::size_t names_ = 0;  // so many logged names were looked at
};

}  // namespace reigen::train
