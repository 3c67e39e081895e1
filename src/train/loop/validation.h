// Computes the score of the model over its test data.
// Thread rule: used only by its rank's thread. All ranks call the functions marked "Collective", in the same order.
#pragma once

#include <cstdint>
#include <functional>
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

  // Collective. The score over all test samples. Each sample is counted once, because every rank scores its share. Uses
  // the average of the weights if there is one.
  Scores score() { return score_all(false); }
  // Collective. Scores the model in the middle of a run, shows the score to the user and writes it to metrics.jsonl.
  // Stops early if a rank requests a stop. A scheduler may send its signal only two minutes before it ends the job, and
  // a long validation would use up this time. An unfinished validation can be repeated later.
  void score_epoch(std::int64_t epoch);
  // Writes the score to metrics.jsonl.
  void note(const Scores& scores, std::int64_t epoch);

 private:
  Scores score_all(bool may_end);
  using IndicesOf = std::function<std::vector<std::int64_t>(std::int64_t call)>;
  Scores score_some(const std::vector<std::int64_t>& indices);
  void score_in_stages(std::int64_t first, std::int64_t calls, const IndicesOf& indices_of,
                       const std::function<void(const Scores&)>& add);
  data::Samples samples_of(const std::vector<std::int64_t>& indices);
  std::int64_t calls() const;
  bool hears_of_stop();

  Run& run_;
  RunData& data_;
  TrainedModel& model_;
  StepLines& lines_;
};

}  // namespace reigen::train
