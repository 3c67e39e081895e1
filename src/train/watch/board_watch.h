// What TensorBoard gets beside the curves: the graph of a new run, its first pictures (log.images), and the
// distribution of weights and gradients at times (log.histograms).
// Thread rule: used only by the thread of its rank. All ranks call the functions in the same order.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "train/files/step_lines.h"
#include "train/files/summary_values.h"
#include "train/model/trained_model.h"
#include "train/run/cadence.h"
#include "train/run/run.h"
#include "train/start/run_data.h"
#include "train/watch/watcher.h"

namespace reigen::train {

class BoardWatch : public Watcher {
 public:
  BoardWatch(Run& run, const RunData& data, TrainedModel& model, StepLines& lines)
      : run_(run), data_(data), model_(model), lines_(lines) {}

  // Call it when model, data and files are there, also after a rollback. Writes the graph of a new run.
  void begin();
  // Collective in the first step of a new run with log.images, where it throws InvalidArgument (is_common()) if the
  // input is no batch of pictures; and with log.histograms in a time.
  void begin_step(std::int64_t step, const data::Batch& batch, double waited) override;
  // Collective when histograms are due. The gradients are counted when they are averaged and not yet clipped, the
  // weights after the step. Each rank counts the part that it would write into a checkpoint.
  void end_phase(Phase phase) override;
  void end_step(std::int64_t step) override;
  void abandon_step() override { is_due_ = false; }

 private:
  void write_graph();
  void write_pictures(const data::Batch& batch);
  std::vector<Buckets> count_weights() const;
  void count_gradients();
  void write(const char* kind, const char* kind_of_norms, const std::vector<Buckets>& counted, std::int64_t step);

  Run& run_;
  const RunData& data_;
  TrainedModel& model_;
  StepLines& lines_;
  std::optional<Cadence> cadence_;
  std::map<std::string, std::size_t> number_;  // of the parameters of the whole model
  std::vector<std::string> names_;
  bool is_due_ = false;
  std::vector<Buckets> gradients_;  // of this step
};

}  // namespace reigen::train
