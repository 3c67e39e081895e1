// The score of the model over its test data.
// Thread rule: the thread of its rank. What is marked collective every rank calls at the same place.
#pragma once

#include <cstdint>
#include <vector>

#include "reigen/train/task.h"
#include "train/files/step_lines.h"
#include "train/model/trained_model.h"
#include "train/run/run.h"
#include "train/start/run_data.h"

namespace reigen::train {

class Validation {
 public:
  Validation(Run& run, RunData& data, TrainedModel& model, StepLines& lines)
      : run_(run), data_(data), model_(model), lines_(lines) {}

  // Collective. Over all test samples, each counted once: every rank takes its share. Of the average of the weights
  // where there is one.
  Scores score() { return score_all(false); }
  // Collective. The same in the middle of a run, told to the user and noted; broken off where a rank wants to stop: a
  // scheduler that warns two minutes before the end may do so in the middle of a long validation, which can be had
  // again.
  void score_epoch(std::int64_t epoch);
  // Into metrics.jsonl.
  void note(const Scores& scores, std::int64_t epoch);

 private:
  Scores score_all(bool may_end);
  Scores score_some(const std::vector<std::int64_t>& indices);
  std::int64_t calls() const;
  bool hears_of_stop();

  Run& run_;
  RunData& data_;
  TrainedModel& model_;
  StepLines& lines_;
};

}  // namespace reigen::train
