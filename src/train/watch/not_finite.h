// A step that gave no number, and what train.not_finite does about it: the run ends, the step is skipped, or the run
// goes back to its newest checkpoint and leaves the batch out.
//
// If ranks hold the same weights, every rank calls meet() for the same step, before a weight has changed. If ranks step
// by themselves, the rank whose step gave no number throws alone (require_own), and its end ends the others.
// Thread rule: the thread of its rank. What is marked collective every rank calls at the same place.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "reigen/base/error.h"
#include "reigen/data/loader.h"
#include "train/files/checkpoints.h"
#include "train/files/step_lines.h"
#include "train/model/optimization.h"
#include "train/model/trained_model.h"
#include "train/run/run.h"
#include "train/watch/blame.h"

namespace reigen::train {

class NotFinite {
 public:
  NotFinite(Run& run, TrainedModel& model, Checkpoints& checkpoints, StepLines& lines)
      : run_(run), model_(model), checkpoints_(checkpoints), lines_(lines), blame_(run, model) {}

  // Thrown by every rank, for the run to go back.
  struct GoBack {
    Report report;
    std::int64_t epoch;
    std::int64_t position;
  };

  // Before each step.
  void begin_step();
  // Collective. loss: of all ranks; own: this rank's mean. Returns if the step is to be skipped, else throws.
  void meet(double loss, const Optimization::Gradients& gradients, const data::Batch& batch, double own);
  // Collective. As meet(), after the weights have stepped: only each rank's own gradients can tell whose it was.
  void meet_after_step(const data::Batch& batch);
  // For a rank that steps by itself. Throws if its loss or gradients are not finite.
  void require_own(double loss, const Optimization::Gradients& gradients, const data::Batch& batch);
  // Replaces the optimizer's step: drops the gradients, and sets the buffers back to their values before the forward.
  void skip();
  // The step gave numbers.
  void note_numbers();

  // Collective. Sets run.resume to the newest checkpoint and leaves the batch out from now on. Throws if there is no
  // checkpoint, or if going back did not help several times.
  void go_back(const GoBack& step);
  bool is_left_out(const data::Batch& batch) const;

 private:
  struct LeftOut {
    std::int64_t epoch;
    std::int64_t position;
    bool operator==(const LeftOut&) const = default;
  };
  void answer(Report report, const data::Batch& batch);
  Report report(const char* what, double value, const data::Batch& batch, const std::string& whose) const;

  Run& run_;
  TrainedModel& model_;
  Checkpoints& checkpoints_;
  StepLines& lines_;
  Blame blame_;
  int skipped_in_a_row_ = 0;
  std::vector<at::Tensor> buffers_;  // before the step, where it may be skipped
  int rollbacks_in_a_row_ = 0;
  std::int64_t failed_at_ = 0;     // the step after which the newest rollback came
  std::vector<LeftOut> left_out_;  // batches
};

}  // namespace reigen::train
