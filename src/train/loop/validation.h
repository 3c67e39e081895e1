// Computes the score of the model over its test data.
// Thread rule: used only by its rank's thread. All ranks call the functions marked "Collective", in the same order.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "reigen/checkpoint/checkpoint.h"
#include "reigen/train/task.h"
#include "train/files/step_lines.h"
#include "train/loop/cadence.h"
#include "train/loop/early_stop.h"
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
  Scores score() { return score_all(0, false); }
  // Collective. Call it before the first step of this start: from now on the time of validate.every counts. Scores a
  // few batches of a new run, and drops the score (validate.sanity); also to find out whether there is a figure
  // stop.monitor. `found`: the checkpoint of a resumed run. What the validations before it gave is read from the
  // metrics.jsonl of its run, for stop.monitor. If the training had ended by it, run.total becomes run.done.
  void begin(const checkpoint::Checkpoint* found);
  // Whether a validation is due after step run.done (validate.every). Call it once after each step. Collective.
  bool is_due(const InEpoch& step);
  // Whether stop.monitor has ended the training, and why.
  bool has_ended() const { return !why_.empty(); }
  const std::string& why() const { return why_; }
  // Collective. Scores the model in the middle of a run, shows the score to the user and writes it to metrics.jsonl.
  // Stops early if a rank requests a stop. A scheduler may send its signal only two minutes before it ends the job, and
  // a long validation would use up this time. An unfinished validation can be repeated later.
  // At most validate.limit samples are scored. If stop.monitor has stopped improving, run.total becomes run.done.
  void score_epoch(std::int64_t epoch);
  // Writes the score to metrics.jsonl. `is_last`: of the validation at the end of the run.
  void note(const Scores& scores, std::int64_t epoch, bool is_last);

 private:
  // The first `most` test samples; all if it is 0.
  Scores score_all(std::int64_t most, bool may_end);
  using IndicesOf = std::function<std::vector<std::int64_t>(std::int64_t call)>;
  Scores score_some(const std::vector<std::int64_t>& indices);
  void score_in_stages(std::int64_t first, std::int64_t calls, const IndicesOf& indices_of,
                       const std::function<void(const Scores&)>& add);
  void remember(const std::filesystem::path& metrics);
  void judge();
  std::vector<std::pair<std::string, double>> figures_of(const Scores& scores) const;
  data::Samples samples_of(const std::vector<std::int64_t>& indices);
  std::int64_t calls(std::int64_t samples) const;
  bool hears_of_stop();

  Run& run_;
  RunData& data_;
  TrainedModel& model_;
  StepLines& lines_;
  std::optional<Cadence> cadence_;
  EarlyStop early_stop_{run_.config.stop};
  std::string why_ = {};
  bool told_mean_ = false;
};

}  // namespace reigen::train
