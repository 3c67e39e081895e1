#include "train/files/run_files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/nn/module.h>

#include <system_error>

#include "checkpoint/directory.h"
#include "format/input_file.h"
#include "reigen/base/error.h"
#include "reigen/format/atomic_file.h"
#include "reigen/tensor/tensor_files.h"
#include "train/run/agree.h"
#include "train/run/best_checkpoint.h"
#include "train/start/resume.h"

namespace reigen::train {

namespace fs = std::filesystem;

void RunFiles::find() {
  ResumePoint point{.run_directory = run_.config.run.dir};
  if (wants_resume(run_.config)) {
    together(run_.world, "resume", [&] {
      if (run_.is_first()) point = find_resume_point(run_.config);
    });
  }
  const std::string path = share_text(run_.world, point.checkpoint.string());
  together(run_.world, "run directory", [&] {
    if (run_.is_first() && point.run_directory.empty()) {
      point.run_directory = default_run_directory(run_.name(), made_);
    }
  });
  directory_ = share_text(run_.world, point.run_directory.string());
  same_run_ = point.same_run || run_.rollbacks > 0;  // also after a rollback, because the run keeps its directory
  unreadable_ = point.unreadable;
  for (const std::string& note : point.notes) run_.say(note);
  if (path.empty()) return;
  together(run_.world, "checkpoint", [&] { found_.emplace(path); });
  run_.done = found_->manifest().step;
  run_.epoch = found_->manifest().epoch;
  run_.position = found_->manifest().position;
  if (!run_.config.train.global_batch) run_.config.train.global_batch = found_->manifest().global_batch;
}

void RunFiles::open(const Contents& contents, StepLines& lines) {
  together(run_.world, "run directory", [&] {
    if (run_.is_first()) write_start(contents, lines);
  });
  made_.keep();
}

void RunFiles::write_start(const Contents& contents, StepLines& lines) {
  held_.emplace(directory_, same_run_, made_);
  if (!held_->warning().empty() && run_.rollbacks == 0) run_.say("warning: " + held_->warning());
  if (!run_.config.data.dump_order.empty()) {
    lines.open_order(run_.config.data.dump_order, contents.drawn_by, run_.done);
  }
  std::error_code unknown;
  const bool has_results = steps_of_summary(directory_ / "summary.json") >= run_.done &&
                           fs::exists(directory_ / "model.safetensors", unknown);
  if (found_ && run_.done >= run_.total && has_results) return;  // the run has ended, so nothing may change
  Config resolved = run_.config;
  resolved.run.dir = directory_.string();
  resolved.run.resume.clear();  // resume and may_differ are options of this start, not of the run
  resolved.data.may_differ = false;
  // Notes the files that this start creates, so that they are removed again if the start fails. Files that remain would
  // make the next start fail.
  const auto make = [&](const char* name, const auto& body) {
    std::error_code ignored;
    const bool is_new = !fs::exists(fs::symlink_status(directory_ / name, ignored));
    body(directory_ / name);
    if (is_new) made_.note(directory_ / name);
  };
  make("config.toml",
       [&](const fs::path& path) { format::write_file_atomically(path, std::string_view(to_toml(resolved))); });
  for (const auto& [name, source] : contents.files) {
    const std::string content = format::read_text(source);
    make(name.c_str(), [&](const fs::path& path) { format::write_file_atomically(path, std::string_view(content)); });
  }
  if (found_) set_future_aside();
  make("metrics.jsonl", [&](const fs::path& path) { lines.open_metrics(path, run_.done); });
  if (run_.config.log.tensorboard) {
    lines.open_board(directory_, resolved, run_.done);
    if (!lines.new_board().empty()) made_.note(lines.new_board());
  }
  if (run_.config.log.csv) make("metrics.csv", [&](const fs::path& path) { lines.open_csv(path, run_.done); });
  if (!saves_initial()) return;
  make("initial.safetensors", [&](const fs::path& path) {
    tensor::write_tensors(path, tensor::tensors_of(run_.task.module()), contents.metadata);
  });
}

// If a run is resumed from an older checkpoint, a later resume must not find the newer checkpoints. These are moved to
// another folder, together with a copy of metrics.jsonl, until the run has reached their steps again. Until then the
// user can go back to them.
void RunFiles::set_future_aside() {
  keep_best_up_to(directory_, run_.done, unreadable_);
  const fs::path checkpoints = directory_ / "checkpoints";
  const std::vector<fs::path> all = checkpoint::list(checkpoints);
  const fs::path place = checkpoint::set_aside_path(checkpoints);
  std::error_code error;
  const auto tell = [&](const std::string& what) {
    run_.say(fmt::format(
        "note: {} {}; they are deleted when this run has come as far (docs/checkpoints.md: how to go back to one)",
        what, place.string()));
  };
  if (all.empty() || checkpoint::step_of(all.front()).value_or(run_.done) <= run_.done) {
    if (!checkpoint::list(place).empty()) tell("checkpoints that this run gave up are in");
    return;
  }
  checkpoint::make_directories(place);
  const std::string name = fmt::format("metrics_of_{}.jsonl", all.front().filename().string());
  std::string lines;
  if (fs::is_regular_file(directory_ / "metrics.jsonl", error)) {
    lines = format::read_text(directory_ / "metrics.jsonl");
    if (!fs::exists(place / name, error)) format::write_file_atomically(place / name, std::string_view(lines));
  }
  std::vector<std::string> moved;
  std::vector<std::string> kept;
  for (const fs::path& path : checkpoint::set_aside_after(checkpoints, run_.done, unreadable_)) {
    (path.parent_path() == place ? moved : kept).push_back(path.filename().string());
    if (path.parent_path() != place) format::write_file_atomically(path.parent_path() / name, std::string_view(lines));
  }
  if (!kept.empty()) {
    run_.say(fmt::format("note: checkpoints that cannot be read ({}) are moved to {}", fmt::join(kept, ", "),
                         (checkpoints / "unreadable").string()));
  }
  if (moved.empty()) return;
  tell(fmt::format("the run goes on after step {}, so newer checkpoints ({}) are moved to", run_.done,
                   fmt::join(moved, ", ")));
}

}  // namespace reigen::train
