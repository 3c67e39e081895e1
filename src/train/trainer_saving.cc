// A run's checkpoints: when they are written, and what happens when they cannot be.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <torch/nn/module.h>

#include <set>
#include <string>

#include "reigen/tensor/pieces.h"
#include "train/agree.h"
#include "train/trainer_impl.h"

namespace reigen::train {

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
  together(world, "checkpoint", [&] {
    require_finite(state);
    if (!is_first()) return;
    metrics->flush();
    if (order) order->flush();
  });
  return state;
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
  saver.emplace(
      directory / "checkpoints", world,
      checkpoint::SaverOptions{.keep = config.checkpoint.keep, .asynchronous = config.checkpoint.asynchronous});
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
  asked_to_save = done;
  try {
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
    // A thread that writes may have ended on some ranks and not yet on others, and below all must count alike.
    if (!config.checkpoint.asynchronous) hear_of_saving();
  } catch (const IoError& error) {
    note_failed_save(error);
  }
  if (failed_saves >= kFailuresInARow) {
    throw CommonError(ExitCode::kIo,
                      fmt::format("{} checkpoints in a row could not be written; {}", failed_saves, why_not_saved));
  }
}

// The newest whole one: this run's, or that from which it went on.
std::filesystem::path Trainer::Impl::last_checkpoint() const {
  const bool is_own = !found || saved != found->manifest().step;
  return is_own ? directory / "checkpoints" / checkpoint::name_of(saved) : found->path();
}

// After the last step nothing comes that could be saved instead.
void Trainer::Impl::save_last() {
  if (asked_to_save != done) save_checkpoint();
  finish_saving();
  if (saved != done) throw CommonError(ExitCode::kIo, why_not_saved);
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
  }
}

// Training goes on: the checkpoint before is whole, and a disk may recover.
void Trainer::Impl::note_failed_save(const IoError& error) {
  ++failed_saves;
  why_not_saved = error.what();
  say(fmt::format("warning: no checkpoint of step {}: {}", asked_to_save, error.what()));
}

}  // namespace reigen::train
