// A run's checkpoints: when one can be written, what is written, and what happens when the disk does not take it.
//
// A save that fails is a warning: the checkpoint before is whole, and a disk may recover. After three in a row for want
// of anything but room the run gives up. Where there is no room it goes on: its end needs less than a checkpoint.
// Every rank counts the same failures, so all end together.
//
// Thread rule: the thread of its rank. What is marked collective every rank calls at the same place.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <string>

#include "reigen/base/error.h"
#include "reigen/checkpoint/saver.h"
#include "reigen/tensor/pieces.h"
#include "train/files/run_files.h"
#include "train/files/step_lines.h"
#include "train/model/trained_model.h"
#include "train/run/run.h"
#include "train/start/run_data.h"

namespace reigen::train {

class Checkpoints {
 public:
  // give_up: called on every rank where saves keep failing in the middle of a run; throws.
  Checkpoints(Run& run, const RunFiles& files, const RunData& data, TrainedModel& model, StepLines& lines,
              std::function<void()> give_up);

  // Call it before the first step. The checkpoint from which the run goes on counts as saved. Values that are NaN now
  // and are not trained may be NaN in checkpoints too.
  void begin();
  // Collective. Says before the first step what will not fit. A warning, because others may free space meanwhile.
  void look_at_room();
  // While the first steps are made, the kernel gives the memory that the first copy would wait for.
  void prepare();
  // Collective. Throws 80 if the state is not finite. Such a state must not replace an older checkpoint.
  void require_finite();
  // Collective. Saves the state, after the lines of the steps were written. Throws as require_finite().
  void save();
  // Waits for the save that is under way.
  void wait();
  // Notes whether the last save has ended by now, and how. Does not wait.
  void hear();
  // Collective. Deletes older checkpoints to make room for the last one, then saves it. The weights must be on the disk
  // before: at every moment the user has either the weights or a checkpoint.
  void save_last_in_little_room();
  // Ends the thread that writes.
  void release() { saver_.reset(); }

  std::int64_t saved() const { return saved_; }            // step of the newest one; -1: there is none
  std::int64_t asked_to_save() const { return asked_; }    // step of the newest that was begun
  bool lacks_room() const { return lacks_room_; }          // the newest failed for want of room
  int failed_in_a_row() const { return failed_; }          // for want of anything else
  const std::string& why_not() const { return why_not_; }  // the error of the newest save that failed
  std::filesystem::path last() const;                      // the newest whole one
  std::filesystem::path folder() const { return files_.directory() / "checkpoints"; }
  std::string way_back() const;  // how a run goes on from the newest one; empty: there is none

 private:
  struct State {
    tensor::Pieces model;
    tensor::Pieces optimizer;
    checkpoint::Contents contents() const { return {{"model", model.pieces()}, {"optimizer", optimizer.pieces()}}; }
  };
  State state() const;
  State checked_state();
  std::int64_t bytes_needed();
  void open();
  void note_failed(const IoError& error);
  bool should_give_up() const;

  Run& run_;
  const RunFiles& files_;
  const RunData& data_;
  TrainedModel& model_;
  StepLines& lines_;
  std::function<void()> give_up_;
  std::optional<checkpoint::Saver> saver_;
  std::int64_t saved_ = -1;
  std::int64_t asked_ = -1;
  int failed_ = 0;
  bool lacks_room_ = false;
  std::string why_not_;
  std::set<std::string> begins_with_nan_;  // what is not trained may hold one on purpose
};

}  // namespace reigen::train
