#include "train/files/checkpoints.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <system_error>
#include <utility>

#include "base/machine/file_system.h"
#include "base/text.h"
#include "checkpoint/directory.h"
#include "checkpoint/write.h"
#include "comm/agree.h"
#include "reigen/base/bytes.h"
#include "train/run/agree.h"
#include "train/run/rank_states.h"

namespace reigen::train {

namespace fs = std::filesystem;

namespace {

constexpr const char* kMetricsState = "metrics";
constexpr const char* kValidationsState = "validations";
constexpr const char* kValidationIsDue = "state.validation_is_due";
constexpr int kFailuresInARow = 3;  // after so many failed saves the run gives up

// Nothing if checkpoints are saved only at a stop and at the end.
std::optional<config::Duration> every_of(const config::CheckpointConfig& config) {
  if (config.every_steps > 0) return config::Duration{.count = static_cast<double>(config.every_steps)};
  if (config.every.empty()) return std::nullopt;
  return config::parse_duration("checkpoint.every", config.every);
}

std::int64_t checkpoints_in(const fs::path& folder) {
  try {
    return static_cast<std::int64_t>(checkpoint::list(folder).size());
  } catch (const IoError&) {
    return 0;  // the first save will report this error
  }
}

}  // namespace

Checkpoints::Checkpoints(Run& run, const RunFiles& files, const RunData& data, TrainedModel& model, StepLines& lines,
                         Callbacks& callbacks, std::function<void()> give_up)
    : run_(run),
      files_(files),
      data_(data),
      model_(model),
      lines_(lines),
      callbacks_(callbacks),
      give_up_(std::move(give_up)) {}

void Checkpoints::begin() {
  run_.validations.reset();
  if (const auto every = every_of(run_.config.checkpoint)) cadence_.emplace(*every, data_.loader().size());
  if (const checkpoint::Checkpoint* found = files_.found()) {
    const checkpoint::Manifest& manifest = found->manifest();
    saved_ = asked_ = told_ = manifest.step;
    callbacks_.restore(manifest.options, manifest.world_size);
    restore_metrics();
    if (const auto states = states_in(manifest.options, kValidationsState); !states.empty())
      run_.validations = validated_in(states.front());
    run_.validation_is_due = manifest.options.contains(kValidationIsDue);
  }
  begins_with_nan_.clear();
  const State now = state();
  for (const checkpoint::Piece& piece : now.model.pieces()) {
    if (checkpoint::not_finite_in(piece).has_nan) begins_with_nan_.insert(piece.name);
  }
}

// In another layout, rank 0 brings the sums of all.
void Checkpoints::restore_metrics() {
  const checkpoint::Manifest& manifest = files_.found()->manifest();
  if (run_.position == 0) return;
  const std::vector<std::string> states = states_in(manifest.options, kMetricsState);
  const bool is_same = manifest.world_size == run_.world.size() && manifest.mesh == model_.mesh() &&
                       states.size() <= static_cast<std::size_t>(run_.world.size());
  for (std::size_t rank = 0; rank < states.size(); ++rank) {
    if (is_same ? rank == static_cast<std::size_t>(run_.world.rank()) : run_.is_first())
      run_.metrics.restore(states[rank]);
  }
}

Checkpoints::State Checkpoints::state() const {
  return {.model = tensor::Pieces(model_.parallel().own_weights()),
          .optimizer = tensor::Pieces(model_.parallel().own(model_.state()))};
}

// Returns the bytes of a checkpoint, of all ranks together.
std::int64_t Checkpoints::bytes_needed() {
  auto bytes = static_cast<std::int64_t>(checkpoint::room_for(state().contents()));
  run_.world.all_reduce(&bytes, &bytes, 1, DataType::kInt64, ReduceOp::kSum, {.tag = "room for a checkpoint"});
  return bytes;
}

// How many checkpoints the run will still write. How many fit into a time is not known: two, that is, more than one.
std::int64_t Checkpoints::expected() const {
  const auto every = every_of(run_.config.checkpoint);
  if (!every) return 1;
  if (every->unit == config::Duration::Unit::kSeconds) return 2;
  const double steps = every->unit == config::Duration::Unit::kSteps
                           ? every->count
                           : every->count * static_cast<double>(data_.loader().steps());
  return static_cast<std::int64_t>(std::ceil(static_cast<double>(run_.total - run_.done) / steps));
}

bool Checkpoints::is_due(const InEpoch& step) { return cadence_ && cadence_->is_due(run_.done, step, run_.world); }

void Checkpoints::look_at_room() {
  const std::int64_t bytes = bytes_needed();
  if (!run_.is_first()) return;
  const std::optional<std::uint64_t> room = base::room_in(files_.directory());
  if (!room) return;
  const std::int64_t there = checkpoints_in(folder());
  const std::int64_t to_come = expected();
  // A new checkpoint is written before an old one is deleted. So for a while there is one checkpoint more than
  // checkpoint.keep.
  const std::int64_t at_once =
      std::max<std::int64_t>(std::min(to_come + there, run_.config.checkpoint.keep + 1) - there, 1);
  const auto one = static_cast<std::uint64_t>(bytes);
  const int models = model_.optimizers().has_average() ? 2 : 1;
  const auto model = static_cast<std::uint64_t>(models * model_.whole_weights());
  const std::uint64_t needed = static_cast<std::uint64_t>(at_once) * one + model;
  if (*room >= needed) return;
  std::string what =
      fmt::format("warning: {} are free in {}, and this run will write up to {}: {} of {} at a time, and {} of ",
                  format_bytes(*room), files_.directory().string(), format_bytes(needed),
                  base::counted(at_once, "checkpoint"), format_bytes(one), models == 1 ? "a model" : "models");
  what += format_bytes(model);
  if (*room < model)
    what += "; not even the trained weights will fit";
  else if (*room < one + model)
    what += "; the last checkpoint will not fit beside the trained weights, which are written first";
  run_.say(what + "; free space, or change checkpoint.keep, checkpoint.every, run.dir");
}

void Checkpoints::require_finite() { checked_state(); }

// Returns the state after a check that it is finite. A state that is not finite must not replace an older checkpoint.
// Parameters and buffers that the model does not train may be infinite on purpose, for example masks.
Checkpoints::State Checkpoints::checked_state() {
  model_.settle();
  State now = state();
  together(run_.world, "checkpoint", [&] {
    std::set<std::string> trained;
    for (const auto& entry : model_.module().named_parameters()) {
      if (entry.value().requires_grad()) trained.insert(entry.key());
    }
    for (const auto& [group, pieces] : now.contents()) {
      for (const checkpoint::Piece& piece : pieces) {
        const auto [has_nan, has_infinity] = checkpoint::not_finite_in(piece);
        const bool is_fixed = group == "model" && !trained.contains(piece.name);
        const bool may_be = is_fixed && (!has_nan || begins_with_nan_.contains(piece.name));
        if (may_be || (!has_nan && !has_infinity)) continue;
        throw Error(ExitCode::kNotANumber,
                    Report{.what = fmt::format("the state after step {} is not finite: no checkpoint of it", run_.done),
                           .got = fmt::format("{} in {} {}", has_nan ? "NaN" : "infinity", group, piece.name),
                           .fix = "use a smaller optim.lr, or look at the data"});
      }
    }
  });
  return now;
}

void Checkpoints::open() {
  if (saver_) return;
  saver_.emplace(folder(), run_.world,
                 checkpoint::SaverOptions{.keep = run_.config.checkpoint.keep,
                                          .asynchronous = run_.config.checkpoint.asynchronous,
                                          .warns_without_locks = false});  // RunDirectory warns already
}

void Checkpoints::prepare() {
  if (!run_.config.checkpoint.asynchronous || run_.done >= run_.total) return;
  try {
    open();
    saver_->prepare(state().contents());
  } catch (const IoError&) {
    // The first save tries again and reports the error.
  }
}

// Collective, because ranks and callbacks have states of their own.
checkpoint::Manifest Checkpoints::manifest() const {
  const bool ended = run_.position >= data_.loader().size();
  std::map<std::string, std::string> options = data_.described();
  std::map<std::string, std::string> states = callbacks_.states();
  if (run_.logs()) states[kMetricsState] = run_.metrics.state();
  if (run_.is_first() && run_.validations) states[kValidationsState] = to_text(*run_.validations);
  keep_states(options, states, run_.world);
  if (run_.validation_is_due) options[kValidationIsDue] = "true";
  return {.step = run_.done,
          .epoch = ended ? run_.epoch + 1 : run_.epoch,
          .position = ended ? 0 : run_.position,
          .global_batch = data_.loader().global_batch(),
          .seed = run_.config.train.seed,
          .world_size = run_.world.size(),
          .optimizer_steps = model_.optimization().steps(),
          .mesh = model_.mesh(),
          .options = std::move(options)};
}

// If rank 0 cannot write the lines of the steps, every rank throws its error and no checkpoint is made, because a run
// that is resumed from a checkpoint needs the lines of the steps before it.
void Checkpoints::flush_lines() {
  comm::attempt_first(run_.world, "lines of steps", [&] {
    lines_.flush();
    return std::string();
  });
}

void Checkpoints::save_to(const fs::path& folder) {
  const State now = checked_state();
  wait();
  flush_lines();
  checkpoint::save(folder, manifest(), now.contents(), std::numeric_limits<std::int64_t>::max(), run_.world);
}

void Checkpoints::save() {
  const State now = checked_state();
  wait();
  // A background save may have ended on some ranks and not yet on others. After wait() all ranks have counted the same
  // failures, so they all decide alike whether to give up.
  const bool asynchronous = run_.config.checkpoint.asynchronous;
  if (asynchronous && should_give_up()) give_up_();
  asked_ = run_.done;
  try {
    flush_lines();
    open();
    saver_->save(manifest(), now.contents());
    if (!asynchronous) {
      hear();
      tell_saved();
    }
  } catch (const IoError& error) {
    note_failed(error);
  }
  if (!asynchronous && should_give_up()) give_up_();
}

fs::path Checkpoints::save_now() {
  if (!model_.is_made() || !data_.has_training())
    throw InvalidArgument(Report{.what = "save_checkpoint(): there is no state yet", .fix = "call fit() before"});
  if (saved_ != run_.done) save();
  wait();
  if (saved_ != run_.done) throw common(IoError(why_not_));
  return last();
}

// A run does not give up at its end, because other files are still to be written.
bool Checkpoints::should_give_up() const { return failed_ >= kFailuresInARow && run_.done < run_.total && !run_.stop; }

void Checkpoints::wait() {
  if (!saver_) return;
  try {
    saver_->wait();
    hear();
    tell_saved();
  } catch (const IoError& error) {
    note_failed(error);
  }
}

// A background save may have ended on some ranks and not yet on others. So callbacks are told only where all ranks have
// waited for it.
void Checkpoints::tell_saved() {
  if (std::exchange(told_, saved_) != saved_) callbacks_.saved_checkpoint(last());
}

void Checkpoints::hear() {
  if (!saver_ || saver_->is_saving()) return;
  try {
    saver_->check();
  } catch (const IoError& error) {
    return note_failed(error);
  }
  if (const auto path = saver_->last(); path && path->filename() == checkpoint::name_of(asked_)) {
    saved_ = asked_;
    failed_ = 0;
    lacks_room_ = false;
  }
}

void Checkpoints::note_failed(const IoError& error) {
  lacks_room_ = dynamic_cast<const NoRoom*>(&error) != nullptr;
  if (!lacks_room_) ++failed_;
  why_not_ = error.what();
  run_.say(fmt::format("warning: no checkpoint of step {}: {}", asked_, error.what()));
}

void Checkpoints::save_last_in_little_room() {
  const std::int64_t bytes = bytes_needed();
  std::string gone;
  if (run_.is_first()) {
    try {
      const auto steps = checkpoint::make_room(folder(), static_cast<std::uint64_t>(bytes), run_.done);
      gone = fmt::format("{}", fmt::join(steps, ", "));
    } catch (const IoError& error) {
      run_.say(fmt::format("warning: older checkpoints stay: {}", error.what()));
    }
  }
  gone = share_text(run_.world, gone);
  if (gone.empty()) return;
  run_.say(fmt::format("note: older checkpoints (of steps {}) are deleted, to make room for the last", gone));
  std::error_code unknown;
  const bool is_gone = run_.is_first() && saved_ > 0 && !fs::exists(last(), unknown) && !unknown;
  if (!share_text(run_.world, is_gone ? "gone" : "").empty()) saved_ = -1;  // no message may name this checkpoint
  save();
  wait();
}

// The last checkpoint is either one of this run, or the one from which this run was resumed.
fs::path Checkpoints::last() const {
  const bool is_own = files_.found() == nullptr || saved_ != files_.found()->manifest().step;
  return is_own ? folder() / checkpoint::name_of(saved_) : files_.found()->path();
}

std::string Checkpoints::way_back() const {
  if (saved_ <= 0) return "";
  const fs::path path = last();
  std::error_code ignored;
  if (!fs::exists(path, ignored) && !ignored) return "";
  const bool is_own = fs::equivalent(path.parent_path(), folder(), ignored);
  return is_own ? fmt::format("a run goes on from the checkpoint of step {} with --run.resume true", saved_)
                : fmt::format("a run goes on from the checkpoint of step {} with --run.resume {}", saved_,
                              base::quote_shell(path.string()));
}

}  // namespace reigen::train
