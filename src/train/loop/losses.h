// Adds up the losses of all ranks: in each step, or, if ranks step by themselves, for several steps together, so that
// no rank waits for another in each step. Rank 0 writes them down and shows them. Thread rule: the thread of its rank.
// What is marked collective every rank calls at the same place.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "reigen/data/loader.h"
#include "train/files/step_lines.h"
#include "train/model/optimization.h"
#include "train/model/trained_model.h"
#include "train/run/run.h"
#include "train/run/step_times.h"
#include "train/start/run_data.h"

namespace reigen::train {

class Losses {
 public:
  Losses(Run& run, const RunData& data, const TrainedModel& model, StepLines& lines)
      : run_(run), data_(data), model_(model), lines_(lines) {}

  // A rank that may run ahead meets the others after so many steps at most.
  static constexpr std::int64_t kTogether = 16;

  // Collective. The loss of the global batch, from every rank's sum over its terms. Learns whether any rank wants to
  // stop, and whether the gradients of all are numbers.
  double add_up(double sum, Optimization::Gradients& gradients, const data::Batch& batch);

  struct Step {
    double loss = 0;  // of the global batch; where losses come late, this rank's sum over its terms
    std::optional<double> grad_norm = {};
    bool skipped = false;
  };
  // Call it after the step was counted: run.done is its number.
  void note(const Step& step, const data::Batch& batch, const StepTime& time);
  // Collective. Adds up what was noted since the last call. Does nothing if losses are added up in each step.
  void add_up_late();

 private:
  struct Noted {
    double loss = 0;
    std::int64_t terms = 0;
    StepMetrics metrics = {};  // rank 0
    std::string order = {};    // rank 0
  };
  void record(Noted& one);

  Run& run_;
  const RunData& data_;
  const TrainedModel& model_;
  StepLines& lines_;
  std::vector<Noted> late_;
};

}  // namespace reigen::train
