// Writes model.safetensors, the trained weights, and model_ema.safetensors, their moving average, at the end of a run.
// Each is one file, even if ranks hold parts of the weights.
// Thread rule: used only by its rank's thread. All ranks call the functions marked "Collective", in the same order.
#pragma once

#include <filesystem>

#include "train/files/checkpoints.h"
#include "train/files/outcome.h"
#include "train/model/trained_model.h"
#include "train/run/run.h"
#include "train/start/run_data.h"

namespace reigen::train {

class ModelFiles {
 public:
  ModelFiles(Run& run, const RunFiles& files, const RunData& data, TrainedModel& model, const Checkpoints& checkpoints,
             Outcome& outcome);

  // Collective. Writes the weights of the newest step. If the run has ended and the disk lacks room, older checkpoints
  // are deleted, but not the newest one. Errors are recorded in `outcome` (outcome.h).
  void write();
  bool has_model() const { return has_model_; }  // model.safetensors was written
  // Collective. Whether an earlier process wrote these files and a summary, for this step or a later one.
  bool has_results() const;
  std::filesystem::path path() const { return files_.directory() / "model.safetensors"; }

 private:
  void make_room();
  void write_model();
  void write_average();
  std::filesystem::path path_of_average() const { return files_.directory() / "model_ema.safetensors"; }

  Run& run_;
  const RunFiles& files_;
  const RunData& data_;
  TrainedModel& model_;
  const Checkpoints& checkpoints_;
  Outcome& outcome_;
  bool has_model_ = false;
};

}  // namespace reigen::train
