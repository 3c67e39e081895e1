// The directory of a run, the checkpoint from which the run goes on, and what is written before the first step.
// Thread rule: the thread of its rank. What is marked collective every rank calls at the same place.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "reigen/checkpoint/checkpoint.h"
#include "reigen/data/sampler.h"
#include "train/files/run_directory.h"
#include "train/files/step_lines.h"
#include "train/run/run.h"
#include "train/start/meaning.h"

namespace reigen::train {

class RunFiles {
 public:
  explicit RunFiles(Run& run) : run_(run) {}

  // Collective. Finds the directory and the checkpoint, and sets the run's place to that of the checkpoint. Throws as
  // find_resume_point, on every rank.
  void find();
  struct Contents {
    data::SamplerOptions drawn_by;  // for data.dump_order
    TextMap metadata;               // of initial.safetensors
  };
  // Collective. Takes the directory for this run and opens the lines. If the run goes on from an older checkpoint,
  // newer ones are put aside. If saves_initial(), rank 0 must have all weights. A start that fails takes back what it
  // made. Throws IoError on every rank.
  void open(const Contents& contents, StepLines& lines);

  const std::filesystem::path& directory() const { return directory_; }  // on every rank
  // Null: the run begins with step 0.
  const checkpoint::Checkpoint* found() const { return found_ ? &*found_ : nullptr; }
  // Whether initial.safetensors is to be written.
  bool saves_initial() const { return run_.config.run.save_initial && !found_; }

 private:
  void write_start(const Contents& contents, StepLines& lines);
  void set_future_aside();

  Run& run_;
  std::filesystem::path directory_;
  std::optional<checkpoint::Checkpoint> found_;
  // Rank 0:
  bool same_run_ = false;                          // the directory holds the run that goes on
  std::vector<std::filesystem::path> unreadable_;  // checkpoints that were passed over
  std::optional<RunDirectory> held_;
  MadeHere made_;  // declared after held_: what was made is taken back before the directory is given up
};

}  // namespace reigen::train
