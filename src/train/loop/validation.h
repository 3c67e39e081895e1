// When a run is validated, and what follows from the figures.
// Thread rule: used only by its rank's thread. All ranks call the functions marked "Collective", in the same order.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "reigen/checkpoint/checkpoint.h"
#include "reigen/train/task.h"
#include "train/files/best_checkpoints.h"
#include "train/files/step_lines.h"
#include "train/loop/early_stop.h"
#include "train/loop/evaluation.h"
#include "train/loop/plateau.h"
#include "train/model/trained_model.h"
#include "train/run/cadence.h"
#include "train/run/callbacks.h"
#include "train/run/run.h"
#include "train/start/run_data.h"

namespace reigen::train {

class Validation {
 public:
  Validation(Run& run, RunData& data, TrainedModel& model, StepLines& lines, Callbacks& callbacks,
             BestCheckpoints& best)
      : run_(run),
        data_(data),
        model_(model),
        lines_(lines),
        callbacks_(callbacks),
        best_(best),
        evaluation_(run, model) {}

  // Collective. The figures of all samples for validation.
  Figures run() { return run_over(run_.most_of_trial(), false); }
  // Collective. Call it before the first step of this start: from now on the time of validate.every counts. Validates
  // a few batches of a new run, and drops the figures (validate.sanity); also to find out whether there is a figure
  // stop.monitor. `found`: the checkpoint of a resumed run. What the validations before it gave is read from it and
  // from the metrics.jsonl of its run. If stop.monitor had ended the training by it, run.total becomes run.done.
  void begin(const checkpoint::Checkpoint* found);
  // Whether a validation is due after step run.done (validate.every). Call it once after each step. Collective.
  bool is_due(const InEpoch& step);
  // Whether stop.monitor has ended the training, and why.
  bool has_ended() const { return !why_.empty(); }
  const std::string& why() const { return why_; }
  // Collective. Validates the model in the middle of a run, shows the figures to the user and writes them to
  // metrics.jsonl. Stops early if a rank requests a stop. A scheduler may send its signal only two minutes before it
  // ends the job, and a long validation would use up this time. An unfinished validation can be repeated later.
  // At most validate.limit samples are taken. If stop.monitor has stopped improving, run.total becomes run.done.
  void run_in_epoch(std::int64_t epoch);
  // Collective. Notes the figures of the validation at the end of the run.
  void note_last(const Figures& figures, std::int64_t epoch);

 private:
  // The first `most` samples; all if it is 0. `is_trial`: before the first step; callbacks are not called.
  Figures run_over(std::int64_t most, bool may_end, bool is_trial = false);
  void note(const Figures& figures, std::int64_t epoch, bool is_last);
  // Whether a figure is watched.
  bool watches() const { return early_stop_.is_on() || best_.is_on() || plateau_->is_on(); }
  std::vector<Validated> earlier(const std::filesystem::path& metrics);
  void remember(const std::vector<Validated>& validations);
  void keep(const Validated& one);
  void tell_nan(const char* option, bool is_on, const std::string& monitor, const Figures& figures);
  void judge();

  Run& run_;
  RunData& data_;
  TrainedModel& model_;
  StepLines& lines_;
  Callbacks& callbacks_;
  BestCheckpoints& best_;
  Evaluation evaluation_;
  std::optional<Cadence> cadence_;
  EarlyStop early_stop_{run_.config.stop};
  std::optional<Plateau> plateau_;  // set by begin()
  std::string why_ = {};
  bool last_is_noted_ = false;  // metrics.jsonl has the figures at the end of the run already
  bool told_mean_ = false;
  std::set<std::string> told_nan_ = {};  // the options whose figure was NaN
};

}  // namespace reigen::train
