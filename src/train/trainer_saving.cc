// A run's checkpoints: when they are written, and what happens when they cannot be.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/nn/module.h>

#include <set>
#include <string>

#include "base/file_system.h"
#include "checkpoint/directory.h"
#include "checkpoint/write.h"
#include "comm/agree.h"
#include "reigen/base/bytes.h"
#include "reigen/format/atomic_file.h"
#include "reigen/tensor/pieces.h"
#include "train/agree.h"
#include "train/trainer_impl.h"

namespace reigen::train {

namespace fs = std::filesystem;

namespace {

constexpr int kFailuresInARow = 3;  // then the disk will not recover by itself

}  // namespace

struct Trainer::Impl::Saved {
  tensor::Pieces model;
  tensor::Pieces optimizer;
  checkpoint::Contents contents() const { return {{"model", model.pieces()}, {"optimizer", optimizer.pieces()}}; }
};

// All that must be true of a state before it replaces an older one.
Trainer::Impl::Saved Trainer::Impl::prepare_to_save() {
  settle();
  Saved state = to_save();
  together(world, "checkpoint", [&] { require_finite(state); });
  return state;
}

// Every rank throws what rank 0 met: a run that goes on from a checkpoint needs the lines of the steps before.
void Trainer::Impl::flush_lines() {
  comm::attempt_first(world, "lines of steps", [&] {
    metrics->flush();
    if (order) order->flush();
    return std::string();
  });
}

// Before an error ends the run: the error is what matters.
void Trainer::Impl::flush_what_can_be() {
  try {
    if (metrics) metrics->flush();
  } catch (const IoError&) {
    tell_trouble(metrics->trouble());
  }
}

// Once for each cause, however long it lasts.
void Trainer::Impl::tell_trouble(const std::string& trouble) {
  if (trouble == told_trouble) return;
  told_trouble = trouble;
  if (!trouble.empty()) say(fmt::format("warning: {}; the lines are kept in memory and tried again", trouble));
}

namespace {

std::int64_t checkpoints_in(const std::filesystem::path& directory) {
  try {
    return static_cast<std::int64_t>(checkpoint::list(directory / "checkpoints").size());
  } catch (const IoError&) {
    return 0;  // the first save tells
  }
}

}  // namespace

// Says before the first step what will not fit. A warning, because others may free space meanwhile.
void Trainer::Impl::look_at_room() {
  auto bytes = static_cast<std::int64_t>(checkpoint::room_for(to_save().contents()));
  world.all_reduce(&bytes, &bytes, 1, DataType::kInt64, ReduceOp::kSum, {.tag = "room for a checkpoint"}).wait();
  if (!is_first()) return;
  const std::optional<std::uint64_t> room = base::room_in(directory);
  if (!room) return;
  const std::int64_t there = checkpoints_in(directory);
  const std::int64_t every = config.checkpoint.every_steps;
  const std::int64_t to_come = every > 0 ? (total - done + every - 1) / every : 1;
  // The new one lies beside those that it replaces for a while.
  const std::int64_t at_once = std::max<std::int64_t>(std::min(to_come + there, config.checkpoint.keep + 1) - there, 1);
  const auto one = static_cast<std::uint64_t>(bytes);
  const int models = optimization->has_average() ? 2 : 1;
  const auto model = static_cast<std::uint64_t>(models * whole_weights());
  const std::uint64_t needed = static_cast<std::uint64_t>(at_once) * one + model;
  if (*room >= needed) return;
  std::string what =
      fmt::format("warning: {} are free in {}, and this run will write up to {}: {} of {} at a time, and {} of ",
                  format_bytes(*room), directory.string(), format_bytes(needed), counted(at_once, "checkpoint"),
                  format_bytes(one), models == 1 ? "a model" : "models");
  what += format_bytes(model);
  if (*room < model)
    what += "; not even the trained weights will fit";
  else if (*room < one + model)
    what += "; the last checkpoint will not fit beside the trained weights, which are written first";
  say(what + "; free space, or change checkpoint.keep, checkpoint.every_steps, run.dir");
}

// Buffers, and weights that are not trained, before the first step.
void Trainer::Impl::note_nan_at_start() {
  begins_with_nan.clear();
  const Saved state = to_save();
  for (const checkpoint::Piece& piece : state.model.pieces()) {
    if (checkpoint::not_finite_in(piece).has_nan) begins_with_nan.insert(piece.name);
  }
}

// What a model does not train may be infinite on purpose, as masks are.
void Trainer::Impl::require_finite(const Saved& state) const {
  std::set<std::string> trained;
  for (const auto& entry : task.module().named_parameters()) {
    if (entry.value().requires_grad()) trained.insert(entry.key());
  }
  for (const auto& [group, pieces] : state.contents()) {
    for (const checkpoint::Piece& piece : pieces) {
      const auto [has_nan, has_infinity] = checkpoint::not_finite_in(piece);
      const bool is_fixed = group == "model" && !trained.contains(piece.name);
      const bool may_be = is_fixed && (!has_nan || begins_with_nan.contains(piece.name));
      if (may_be || (!has_nan && !has_infinity)) continue;
      throw Error(ExitCode::kNotANumber,
                  Report{.what = fmt::format("the state after step {} is not finite: no checkpoint of it", done),
                         .got = fmt::format("{} in {} {}", has_nan ? "NaN" : "infinity", group, piece.name),
                         .fix = "use a smaller optim.lr, or look at the data"});
    }
  }
}

Trainer::Impl::Saved Trainer::Impl::to_save() const {
  return {.model = tensor::Pieces(parallel->own_weights()), .optimizer = tensor::Pieces(parallel->own(state()))};
}

void Trainer::Impl::open_saver() {
  if (saver) return;
  saver.emplace(directory / "checkpoints", world,
                checkpoint::SaverOptions{.keep = config.checkpoint.keep,
                                         .asynchronous = config.checkpoint.asynchronous,
                                         .warns_without_locks = false});  // the run's directory was, for all below it
}

// While the first steps are made, the kernel gives the memory that the first copy would wait for.
void Trainer::Impl::prepare_saving() {
  if (!config.checkpoint.asynchronous || done >= total) return;
  try {
    open_saver();
    saver->prepare(to_save().contents());
  } catch (const IoError&) {
    // The first save tries again, and tells.
  }
}

void Trainer::Impl::save_checkpoint() {
  const Saved state = prepare_to_save();
  finish_saving();
  // A thread that writes may have ended on some ranks and not yet on others: all count alike only where all waited.
  const bool asynchronous = config.checkpoint.asynchronous;
  if (asynchronous) require_some_saved();
  asked_to_save = done;
  try {
    flush_lines();
    open_saver();
    const bool ended = position >= loader->size();
    saver->save({.step = done,
                 .epoch = ended ? epoch + 1 : epoch,
                 .position = ended ? 0 : position,
                 .global_batch = loader->global_batch(),
                 .seed = config.train.seed,
                 .world_size = world.size(),
                 .optimizer_steps = optimization->steps(),
                 .mesh = mesh,
                 .options = described},
                state.contents());
    if (!asynchronous) hear_of_saving();
  } catch (const IoError& error) {
    note_failed_save(error);
  }
  if (!asynchronous) require_some_saved();
}

// Ends a run whose checkpoints keep failing, after it has written the weights. All ranks end together: every rank has
// counted the same failures.
void Trainer::Impl::require_some_saved() {
  if (failed_saves < kFailuresInARow || done >= total || stop) return;  // at the end there is more to be done
  if (!has_model) write_models();
  not_written.push_back({fmt::format("checkpoint of step {}", done), ExitCode::kIo,
                         fmt::format("{} checkpoints in a row could not be written; {}", failed_saves, why_not_saved)});
  require_all_saved();
}

// The newest whole one: this run's, or that from which it went on.
std::filesystem::path Trainer::Impl::last_checkpoint() const {
  const bool is_own = !found || saved != found->manifest().step;
  return is_own ? directory / "checkpoints" / checkpoint::name_of(saved) : found->path();
}

// After the last step nothing comes that could be saved instead. The weights come first: they are smaller than a
// checkpoint, which is not to take their room. Where ranks hold parts of them they are made of the checkpoint.
void Trainer::Impl::save_last() {
  const bool has_ended = done >= total;
  finish_saving();  // what makes room for the weights spares the newest checkpoint, which may be under way
  if (has_ended && asked_to_save != done) {
    prepare_to_save();
    if (!parallel->gathers()) write_models();
  }
  if (asked_to_save != done) save_checkpoint();
  finish_saving();
  if (saved == done) return;
  if (!has_model) write_models();
  if (has_ended && has_model && lacks_room) save_last_in_little_room();
  if (saved != done) not_written.push_back({fmt::format("checkpoint of step {}", done), ExitCode::kIo, why_not_saved});
}

// The weights are on the disk, so older checkpoints may go. Not before: one of the two is there at every moment.
void Trainer::Impl::save_last_in_little_room() {
  auto bytes = static_cast<std::int64_t>(checkpoint::room_for(to_save().contents()));
  world.all_reduce(&bytes, &bytes, 1, DataType::kInt64, ReduceOp::kSum, {.tag = "room for a checkpoint"}).wait();
  std::string gone;
  if (is_first()) {
    try {
      const auto steps = checkpoint::make_room(directory / "checkpoints", static_cast<std::uint64_t>(bytes), done);
      gone = fmt::format("{}", fmt::join(steps, ", "));
    } catch (const IoError& error) {
      say(fmt::format("warning: older checkpoints stay: {}", error.what()));
    }
  }
  gone = share_text(world, gone);
  if (gone.empty()) return;
  say(fmt::format("note: older checkpoints (of steps {}) are deleted, to make room for the last", gone));
  std::error_code unknown;
  const bool is_gone = is_first() && saved > 0 && !fs::exists(last_checkpoint(), unknown) && !unknown;
  if (!share_text(world, is_gone ? "gone" : "").empty()) saved = -1;  // else a message would send the user to it
  save_checkpoint();
  finish_saving();
}

void Trainer::Impl::finish_saving() {
  if (!saver) return;
  try {
    saver->wait();
    hear_of_saving();
  } catch (const IoError& error) {
    note_failed_save(error);
  }
}

// Whether the last save has ended by now, and how. Does not wait.
void Trainer::Impl::hear_of_saving() {
  if (!saver || saver->is_saving()) return;
  try {
    saver->check();
  } catch (const IoError& error) {
    return note_failed_save(error);
  }
  if (const auto path = saver->last(); path && path->filename() == checkpoint::name_of(asked_to_save)) {
    saved = asked_to_save;
    failed_saves = 0;
    lacks_room = false;
  }
}

// Training goes on: the checkpoint before is whole, and a disk may recover. Where there is no room, the end of the run
// needs less of it than a checkpoint; to give up would lose all since the last one.
void Trainer::Impl::note_failed_save(const IoError& error) {
  lacks_room = dynamic_cast<const NoRoom*>(&error) != nullptr;
  if (!lacks_room) ++failed_saves;
  why_not_saved = error.what();
  say(fmt::format("warning: no checkpoint of step {}: {}", asked_to_save, error.what()));
}

}  // namespace reigen::train
