// A step that gave no number, and what train.not_finite does about it: the run ends, the step is skipped, or the run
// goes back to its newest checkpoint and leaves the batch out.
//
// Where ranks hold the same weights every rank calls meet() for the same step, before a weight has changed. Where they
// step by themselves the rank that met it ends alone (require_own), and ends the others by its death.
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
  // Collective. loss: of all ranks; own: this rank's mean. Returns where the step is to be skipped.
  void meet(double loss, const Optimization::Gradients& gradients, const data::Batch& batch, double own);
  // Collective. The weights have stepped: only a rank's own gradients tell.
  void meet_after_step(const data::Batch& batch);
  // Of a rank that steps by itself. Throws where loss or gradients are no numbers.
  void require_own(double loss, const Optimization::Gradients& gradients, const data::Batch& batch);
  // Instead of the step: gradients are dropped, and what the forward left in buffers too.
  void skip();
  // The step gave numbers.
  void note_numbers();

  // Collective. Makes the run's configuration that of the checkpoint to go back to. Throws where there is none, or none
  // that helps.
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
