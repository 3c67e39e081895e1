// The end of a run: the last checkpoint, the weights, the scores, and an error that names what could not be written.
// Thread rule: the thread of its rank. What is marked collective every rank calls at the same place.
#pragma once

#include <filesystem>
#include <optional>

#include "reigen/train/task.h"
#include "train/files/checkpoints.h"
#include "train/files/model_files.h"
#include "train/files/outcome.h"
#include "train/files/run_files.h"
#include "train/files/step_lines.h"
#include "train/files/summary.h"
#include "train/loop/validation.h"
#include "train/model/trained_model.h"
#include "train/run/run.h"
#include "train/run/step_times.h"
#include "train/start/run_data.h"
#include "train/watch/memory_watch.h"

namespace reigen::train {

class Ending {
 public:
  Ending(Run& run, const RunFiles& files, const RunData& data, TrainedModel& model, StepLines& lines,
         Checkpoints& checkpoints, Validation& validation, const MemoryWatch& memory, const StepTimes& times,
         Outcome& outcome);

  // Collective. After the last step, or where the run stops. After the last step nothing comes that could be saved
  // instead, so the weights come first: they are smaller than a checkpoint, which is not to take their room. Where
  // ranks hold parts of them they are made of the checkpoint.
  void save_last();
  // Collective. In the middle of a run, where checkpoints keep failing: writes the weights and throws.
  void give_up();
  // Collective. Weights, scores, summary, words. Throws as require_complete().
  void finish();
  // Nothing of what a run made is lost in silence, and what is there is named: throws on every rank where something
  // could not be written.
  void require_complete() const;
  bool has_results() const { return models_.has_results(); }

  // Of finish().
  const std::optional<Scores>& test() const { return test_; }
  // Seconds from the start of the process to the end of the first step that it made.
  void note_first_step();

 private:
  void note_lost_checkpoint(const std::string& why);
  void write_results();
  Summary summarize();
  void say_closing_words();

  Run& run_;
  const RunFiles& files_;
  const RunData& data_;
  TrainedModel& model_;
  StepLines& lines_;
  Checkpoints& checkpoints_;
  Validation& validation_;
  const MemoryWatch& memory_;
  const StepTimes& times_;
  Outcome& outcome_;
  ModelFiles models_;
  std::optional<Scores> test_;
  double first_step_s_ = 0;
};

}  // namespace reigen::train
