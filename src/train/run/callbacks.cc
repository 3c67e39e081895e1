#include "train/run/callbacks.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>

#include "base/log.h"
#include "comm/agree.h"
#include "reigen/base/error.h"
#include "train/run/agree.h"
#include "train/run/failure.h"
#include "train/run/rank_states.h"

namespace reigen::train {

namespace {

std::string key_of(const Callback& callback) { return "callback." + callback.name(); }

}  // namespace

void Callbacks::require_valid() const {
  std::vector<std::string> names;
  together(run_.world, "callbacks", [&] {
    for (const auto& callback : run_.options.callbacks) {
      if (!callback) throw InvalidArgument(Report{.what = "TrainerOptions::callbacks has a null pointer"});
      const std::string name = callback->name();
      if (name.find('\n') != std::string::npos)
        throw InvalidArgument(Report{.what = "the name of a callback has a line break", .got = name});
      if (std::find(names.begin(), names.end(), name) != names.end()) {
        throw InvalidArgument(Report{.what = "two callbacks have one name",
                                     .got = name,
                                     .expected = "another name for each, under which checkpoints keep its state",
                                     .fix = "let name() differ"});
      }
      names.push_back(name);
    }
  });
  // Callbacks may make collective calls, so ranks with other callbacks would wait for each other.
  const auto difference = comm::find_difference(names, run_.world, "callbacks");
  if (!difference) return;
  throw common(InvalidArgument(Report{.what = "ranks have other callbacks",
                                      .got = fmt::format("\"{}\" on rank {}", difference->other, difference->rank),
                                      .expected = fmt::format("\"{}\" as on rank 0", difference->first),
                                      .fix = "give every rank the same callbacks in the same order"}));
}

void Callbacks::restore(const std::map<std::string, std::string>& options, std::int64_t world_size) {
  for (const auto& callback : run_.options.callbacks) {
    const auto states = states_in(options, key_of(*callback));
    const auto own = static_cast<std::size_t>(world_size == run_.world.size() ? run_.world.rank() : 0);
    const std::string state = own < states.size() ? states[own] : std::string();
    if (state.empty() && run_.rollbacks == 0) continue;
    named(*callback, "restore", [&] { callback->restore(state); });
  }
}

std::map<std::string, std::string> Callbacks::states() const {
  std::map<std::string, std::string> states;
  for (const auto& callback : run_.options.callbacks)
    named(*callback, "state", [&] { states[key_of(*callback)] = callback->state(); });
  return states;
}

// An error gets the names of callback and function, and the rank. It is an Error, and no IoError, which would count as
// a disk that refuses a checkpoint.
void Callbacks::named(const Callback& callback, const char* function, const std::function<void()>& body) const {
  try {
    body();
  } catch (...) {
    const Failure failure = failure_of(std::current_exception());
    if (failure.common || failure.aftermath) throw;
    throw Error(
        static_cast<ExitCode>(failure.exit_code),
        fmt::format("callback {}, {}() on rank {}: {}", callback.name(), function, run_.world.rank(), failure.text));
  }
}

void Callbacks::call(const char* function, std::int64_t step, const std::function<void(Callback&, Moment&)>& body) {
  if (run_.options.callbacks.empty()) return;
  Moment moment{.step = step, .steps = run_.total, .epoch = run_.epoch, .task = run_.task, .world = run_.world};
  for (const auto& callback : run_.options.callbacks) {
    named(*callback, function, [&] { body(*callback, moment); });
  }
  if (moment.stop) run_.callback_stops = true;
}

void Callbacks::begin_fit() {
  call("begin_fit", run_.done, [](Callback& one, Moment& moment) { one.begin_fit(moment); });
}
void Callbacks::begin_epoch() {
  call("begin_epoch", run_.done, [](Callback& one, Moment& moment) { one.begin_epoch(moment); });
}
void Callbacks::begin_step(const data::Batch& batch) {
  call("begin_step", run_.done + 1, [&](Callback& one, Moment& moment) { one.begin_step(moment, batch); });
}
void Callbacks::after_backward() {
  call("after_backward", run_.done + 1, [](Callback& one, Moment& moment) { one.after_backward(moment); });
}
void Callbacks::before_optimizer() {
  call("before_optimizer", run_.done + 1, [](Callback& one, Moment& moment) { one.before_optimizer(moment); });
}
void Callbacks::end_step() {
  call("end_step", run_.done, [](Callback& one, Moment& moment) { one.end_step(moment); });
}
void Callbacks::note_loss(std::int64_t step, double loss) {
  call("note_loss", run_.done, [&](Callback& one, Moment& moment) { one.note_loss(moment, step, loss); });
}
void Callbacks::end_epoch(const Figures& figures) {
  call("end_epoch", run_.done, [&](Callback& one, Moment& moment) { one.end_epoch(moment, figures); });
}
void Callbacks::begin_validation() {
  call("begin_validation", run_.done, [](Callback& one, Moment& moment) { one.begin_validation(moment); });
}
void Callbacks::end_validation(const Figures& figures) {
  call("end_validation", run_.done, [&](Callback& one, Moment& moment) { one.end_validation(moment, figures); });
}
void Callbacks::saved_checkpoint(const std::filesystem::path& path) {
  call("saved_checkpoint", run_.done, [&](Callback& one, Moment& moment) { one.saved_checkpoint(moment, path); });
}
void Callbacks::end_fit() {
  call("end_fit", run_.done, [](Callback& one, Moment& moment) { one.end_fit(moment); });
}

void Callbacks::failed(std::string_view what) noexcept {
  for (const auto& callback : run_.options.callbacks) {
    try {
      if (callback) callback->failed(what);
    } catch (const std::exception& error) {
      base::log_warning("callback {}, failed(): {}", callback->name(), error.what());
    }
  }
}

}  // namespace reigen::train
