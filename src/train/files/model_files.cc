#include "train/files/model_files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <system_error>

#include "checkpoint/directory.h"
#include "reigen/base/error.h"
#include "reigen/checkpoint/convert.h"
#include "reigen/tensor/tensor_files.h"
#include "train/model/device.h"
#include "train/model/memory_fit.h"
#include "train/run/agree.h"
#include "train/start/resume.h"

namespace reigen::train {

namespace fs = std::filesystem;

ModelFiles::ModelFiles(Run& run, const RunFiles& files, const RunData& data, TrainedModel& model,
                       const Checkpoints& checkpoints, Outcome& outcome)
    : run_(run), files_(files), data_(data), model_(model), checkpoints_(checkpoints), outcome_(outcome) {}

void ModelFiles::write() {
  model_.settle();
  make_room();
  has_model_ = outcome_.attempt("model.safetensors", [&] { write_model(); });
  if (!model_.optimizers().has_average()) return;
  outcome_.attempt("model_ema.safetensors", [&] { write_average(); });
}

// Deletes older checkpoints if the disk lacks room for the weights, but never the newest checkpoint. If the run was
// stopped before its end, deletes none.
void ModelFiles::make_room() {
  if (!run_.is_first() || checkpoints_.saved() <= 0 || run_.done < run_.total) return;
  const int models = model_.optimizers().has_average() ? 2 : 1;
  const auto bytes = static_cast<std::uint64_t>(model_.whole_weights() * models);
  try {
    const auto gone =
        checkpoint::make_room(checkpoints_.folder(), bytes + bytes / 64 + (64 << 10), checkpoints_.saved());
    if (gone.empty()) return;
    run_.say(fmt::format("note: older checkpoints (of steps {}) are deleted, to make room for the trained weights",
                         fmt::join(gone, ", ")));
  } catch (const IoError& error) {
    run_.say(fmt::format("warning: older checkpoints stay: {}", error.what()));
  }
}

// If no rank has all weights, they are copied from the checkpoint, one tensor at a time. If there is no checkpoint of
// this step, they are gathered in memory, if they fit there.
void ModelFiles::write_model() {
  const bool of_checkpoint = model_.is_in_parts() && checkpoints_.saved() == run_.done;
  if (run_.divides_model() && !of_checkpoint) {
    throw IoError("ranks hold parts of it, and there is no checkpoint to put it together from");
  }
  if (model_.gathers() && !of_checkpoint) {
    require_room("the whole model, of which there is no checkpoint,", model_.whole_weights(), "", run_.world,
                 [&] { return available_on(run_.device); });
    model_.parallel().gather_weights();
  }
  together(run_.world, "model", [&] {
    if (!run_.is_first()) return;
    if (of_checkpoint)
      checkpoint::write_whole(checkpoint::Weights(checkpoints_.last()), path());
    else
      tensor::write_tensors(path(), tensor::tensors_of(model_.module()), data_.metadata());
  });
}

void ModelFiles::write_average() {
  if (model_.is_in_parts()) {
    together(run_.world, "averaged weights", [&] {
      if (checkpoints_.saved() != run_.done) {
        throw IoError("ranks hold parts of it, and there is no checkpoint to put it together from");
      }
      if (run_.is_first()) {
        checkpoint::write_whole(checkpoint::Weights::averages_of(checkpoints_.last()), path_of_average());
      }
    });
    return;
  }
  auto averaged = model_.optimizers().swap_in_average();
  try {
    together(run_.world, "averaged weights", [&] {
      if (run_.is_first()) {
        tensor::write_tensors(path_of_average(), tensor::tensors_of(model_.module()), data_.metadata());
      }
    });
  } catch (const Error& error) {
    if (error.is_common()) averaged->end();
    throw;
  }
  averaged->end();
}

// Rank 0 looks at the files for all ranks.
bool ModelFiles::has_results() const {
  bool there = false;
  if (run_.is_first()) {
    std::error_code ignored;
    there = steps_of_summary(files_.directory() / "summary.json") >= run_.done && fs::exists(path(), ignored) &&
            (!model_.optimizers().has_average() || fs::exists(path_of_average(), ignored));
  }
  return !share_text(run_.world, there ? "yes" : "").empty();
}

}  // namespace reigen::train
