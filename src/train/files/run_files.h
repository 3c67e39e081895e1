// The directory of a run, the checkpoint from which the run is resumed, and the files that are written before the
// first step.
// Thread rule: used only by its rank's thread. All ranks call the functions marked "Collective", in the same order.
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

  // Collective. Finds the run's directory and the checkpoint. Sets step, epoch and position of the run to those of the
  // checkpoint. If the run is to be resumed and no checkpoint can be used, throws the error of find_resume_point()
  // (start/resume.h) on every rank.
  void find();
  struct Contents {
    data::SamplerOptions drawn_by;                                // how the samples are drawn, for data.dump_order
    TextMap metadata;                                             // metadata of initial.safetensors
    std::vector<std::pair<std::string, std::string>> files = {};  // Task::files()
  };
  // Collective. Locks the run's directory and opens the files of `lines`. If the run is resumed from an older
  // checkpoint, newer checkpoints are moved to another folder. If saves_initial() is true, rank 0 must have all
  // weights. If a start fails, the files and folders that it made are removed. Throws IoError on every rank.
  void open(const Contents& contents, StepLines& lines);

  const std::filesystem::path& directory() const { return directory_; }  // known on every rank
  // The checkpoint from which the run is resumed, or null if the run begins at step 0.
  const checkpoint::Checkpoint* found() const { return found_ ? &*found_ : nullptr; }
  // Whether initial.safetensors is to be written.
  bool saves_initial() const { return run_.config.run.save_initial && !found_; }

 private:
  void write_start(const Contents& contents, StepLines& lines);
  void set_future_aside();

  Run& run_;
  std::filesystem::path directory_;
  std::optional<checkpoint::Checkpoint> found_;
  // These members are set only on rank 0:
  bool same_run_ = false;                          // the directory holds the run that is resumed
  std::vector<std::filesystem::path> unreadable_;  // checkpoints that could not be read because of disk errors
  std::optional<RunDirectory> held_;
  MadeHere made_;  // declared after held_, so that it removes files while the directory is still locked
};

}  // namespace reigen::train
