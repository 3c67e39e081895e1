// Handles a step whose loss or gradients are not finite, according to train.not_finite: the run ends, the step is
// skipped, or the run goes back to its newest checkpoint and leaves the batch out.
//
// If all ranks hold the same weights, every rank calls meet() for the same step, before any weight has changed. If each
// rank steps with its own gradients, only the rank with the bad step throws (require_own). When this rank ends, the
// other ranks end too.
// Thread rule: used only by its rank's thread. All ranks call the functions marked "Collective", in the same order.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "reigen/base/error.h"
#include "reigen/data/loader.h"
#include "train/files/checkpoints.h"
#include "train/files/step_lines.h"
#include "train/model/trained_model.h"
#include "train/optimizer/optimization.h"
#include "train/run/run.h"
#include "train/watch/blame.h"

namespace reigen::train {

class NotFinite {
 public:
  NotFinite(Run& run, TrainedModel& model, Checkpoints& checkpoints, StepLines& lines)
      : run_(run), model_(model), checkpoints_(checkpoints), lines_(lines), blame_(run, model) {}

  // Every rank throws this to make the run go back to a checkpoint.
  struct GoBack {
    Report report;
    std::int64_t step;  // number of the step, counted from 1
    std::int64_t epoch;
    std::int64_t position;
  };
  // The numbers of a step that the host has read after the next step was enqueued (loop/late_steps.h).
  struct LateNumbers {
    std::int64_t step = 0;  // number of the step, counted from 1
    double loss = 0;        // of the global batch, over all ranks
    double own = 0;         // the mean loss of this rank
    double norm = 0;        // of the gradients
  };

  // Call it before each step.
  void begin_step();
  // Collective. Handles a step whose loss or gradients are not finite. `loss` is the loss of the global batch, over all
  // ranks, and `own` is the mean loss of this rank. Returns if the step is to be skipped, else throws.
  void meet(double loss, const Optimization::Gradients& gradients, const data::Batch& batch, double own);
  // Collective. Does the same as meet(), but after the optimizer has changed the weights. Only the gradients that each
  // rank still has can then show which rank is to blame.
  void meet_after_step(const data::Batch& batch);
  // Collective. For gradients that an optimizer of a ManualTask was to step with, or has stepped with. They are means
  // over the ranks, so no rank is named. Always throws.
  [[noreturn]] void meet_in_manual_step(const std::string& optimizer, const Optimization::Gradients& gradients,
                                        double lr, const data::Batch& batch);
  // Collective. Does the same as meet() for an earlier step. If the gradients of that step were not finite, no later
  // step has changed the weights. Always throws.
  [[noreturn]] void meet_late(const LateNumbers& numbers, const data::Batch& batch);
  // For ranks that step with their own gradients. Throws if the loss or the gradients of this rank are not finite.
  void require_own(double loss, const Optimization::Gradients& gradients, const data::Batch& batch);
  // Replaces the optimizer's step: drops the gradients and resets the buffers to their values before the forward.
  void skip();
  // Call it if the values of the step with this number are finite.
  void note_numbers(std::int64_t step);

  // Collective. Sets run.resume to the newest checkpoint, and leaves the batch out from now on. Throws if there is no
  // checkpoint, or if going back has failed several times in a row.
  void go_back(const GoBack& step);
  bool is_left_out(const data::Batch& batch) const;

 private:
  struct LeftOut {
    std::int64_t epoch;
    std::int64_t position;
    bool operator==(const LeftOut&) const = default;
  };
  void answer(Report report, std::int64_t step, const data::Batch& batch);
  [[noreturn]] void fail(Report report, std::int64_t step, const data::Batch& batch);
  Report report(const char* what, double value, std::int64_t step, const data::Batch& batch,
                const std::string& whose) const;

  Run& run_;
  TrainedModel& model_;
  Checkpoints& checkpoints_;
  StepLines& lines_;
  Blame blame_;
  int skipped_in_a_row_ = 0;
  std::vector<at::Tensor> buffers_;  // values before the step; used if the step is skipped
  int rollbacks_in_a_row_ = 0;
  std::int64_t failed_at_ = 0;     // number of the step that caused the newest rollback
  std::vector<LeftOut> left_out_;  // batches that are left out
};

}  // namespace reigen::train
