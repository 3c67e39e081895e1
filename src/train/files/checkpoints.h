// Saves the checkpoints of a run, and decides what happens if the disk refuses them.
//
// A failed save causes only a warning, because the checkpoint before it is still whole, and the disk may recover. After
// three failures in a row for other reasons than lack of room, the run gives up. If only room is lacking, the run goes
// on, because the files that it writes at its end need less room than a checkpoint. Every rank counts the same
// failures, so all ranks give up together.
//
// Thread rule: used only by its rank's thread. All ranks call the functions marked "Collective", in the same order.
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
#include "train/run/cadence.h"
#include "train/run/callbacks.h"
#include "train/run/run.h"
#include "train/start/run_data.h"

namespace reigen::train {

class Checkpoints {
 public:
  // `give_up` is called on every rank if saves keep failing in the middle of a run. It must throw.
  Checkpoints(Run& run, const RunFiles& files, const RunData& data, TrainedModel& model, StepLines& lines,
              Callbacks& callbacks, std::function<void()> give_up);

  // Call it before the first step. The checkpoint from which the run is resumed counts as the newest saved one. Tensors
  // that are not trained and hold NaN now may hold NaN in checkpoints too.
  void begin();
  // Whether a checkpoint is due after step run.done (checkpoint.every). Call it once after each step. Collective.
  bool is_due(const InEpoch& step);
  // Collective. Warns before the first step if checkpoints or weights will not fit on the disk. It is only a warning,
  // because other programs may free space during the run.
  void look_at_room();
  // Starts to allocate the memory into which an asynchronous save copies the state. This goes on while the first steps
  // run, so that the first save need not wait for it.
  void prepare();
  // Collective. Throws an Error with exit code 80 if the state is not finite. Such a state must not replace an older
  // checkpoint.
  void require_finite();
  // Collective. Writes the lines of the steps to their files (step_lines.h), then saves the state. Throws the error of
  // require_finite() if the state is not finite.
  void save();
  // Collective. Saves, if there is no checkpoint of this step, waits for it, and returns its path. Throws IoError.
  std::filesystem::path save_now();
  // Collective. Saves the state in another folder, and deletes nothing there. Waits for the disk. Throws IoError.
  void save_to(const std::filesystem::path& folder);
  // Waits for the save in progress.
  void wait();
  // Checks without waiting whether the last save has ended, and records its result.
  void hear();
  // Collective. Deletes older checkpoints to make room for the last one, then saves the last one. The weights must be
  // on the disk before the call, so that at every moment the user has either the weights or a checkpoint.
  void save_last_in_little_room();
  // Ends the thread that writes checkpoints.
  void release() { saver_.reset(); }

  std::int64_t saved() const { return saved_; }            // step of the newest whole checkpoint; -1 if there is none
  std::int64_t asked_to_save() const { return asked_; }    // step of the newest save that has begun
  bool lacks_room() const { return lacks_room_; }          // whether the newest save failed for lack of room
  int failed_in_a_row() const { return failed_; }          // failed saves in a row, without those for lack of room
  const std::string& why_not() const { return why_not_; }  // the error of the newest save that failed
  std::filesystem::path last() const;                      // the newest whole checkpoint
  std::filesystem::path folder() const { return files_.directory() / "checkpoints"; }
  std::string way_back() const;  // text that says how to resume from the newest checkpoint; empty if there is none

 private:
  struct State {
    tensor::Pieces model;
    tensor::Pieces optimizer;
    checkpoint::Contents contents() const { return {{"model", model.pieces()}, {"optimizer", optimizer.pieces()}}; }
  };
  State state() const;
  void restore_metrics();
  State checked_state();
  checkpoint::Manifest manifest() const;
  std::int64_t bytes_needed();
  std::int64_t expected() const;
  void open();
  void flush_lines();
  void tell_saved();
  void note_failed(const IoError& error);
  bool should_give_up() const;

  Run& run_;
  const RunFiles& files_;
  const RunData& data_;
  TrainedModel& model_;
  StepLines& lines_;
  Callbacks& callbacks_;
  std::function<void()> give_up_;
  std::optional<Cadence> cadence_;  // not set: only at a stop and at the end
  std::optional<checkpoint::Saver> saver_;
  std::int64_t saved_ = -1;
  std::int64_t told_ = -1;  // the checkpoint of which callbacks were told last
  std::int64_t asked_ = -1;
  int failed_ = 0;
  bool lacks_room_ = false;
  std::string why_not_;
  std::set<std::string> begins_with_nan_;  // tensors that are not trained and may hold NaN on purpose
};

}  // namespace reigen::train
