// The end of a run: writes the last checkpoint, the weights and the scores. If something could not be written, throws
// an error that names it.
// Thread rule: used only by its rank's thread. All ranks call the functions marked "Collective", in the same order.
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
         Checkpoints& checkpoints, Validation& validation, const BestCheckpoints& best, const MemoryWatch& memory,
         const StepTimes& times, Outcome& outcome);

  // Collective. Saves the last checkpoint, after the last step or when the run stops. After the last step, the weights
  // are written before the checkpoint, because they need less room, and the checkpoint must not take this room. If
  // ranks hold parts of the weights, the weights are copied from the checkpoint after it was written.
  void save_last();
  // Collective. Ends a run whose checkpoints keep failing: writes the weights and throws.
  void give_up();
  // Collective. Writes weights, scores and summary, and says the closing words. Throws the error of require_complete().
  void finish();
  // Throws on every rank if something could not be written. The error names what is lost and what was saved.
  void require_complete() const;
  bool has_results() const { return models_.has_results(); }

  // The figures of the validation in finish(); empty before finish(), or without data for validation.
  Figures figures() const { return figures_.value_or(Figures{}); }
  // Notes the time since the process started. Call it at the end of the process's first step.
  void note_first_step();

 private:
  void note_lost_checkpoint(const std::string& why);
  void write_results();
  std::optional<Summary::Flops> flops_at(double samples_per_s);
  Summary summarize();
  std::optional<Summary::Pipeline> draw_pipeline();
  void say_closing_words();

  Run& run_;
  const RunFiles& files_;
  const RunData& data_;
  TrainedModel& model_;
  StepLines& lines_;
  Checkpoints& checkpoints_;
  Validation& validation_;
  const BestCheckpoints& best_;
  const MemoryWatch& memory_;
  const StepTimes& times_;
  Outcome& outcome_;
  ModelFiles models_;
  std::optional<Figures> figures_;
  double first_step_s_ = 0;
};

}  // namespace reigen::train
