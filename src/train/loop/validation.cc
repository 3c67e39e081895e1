#include "train/loop/validation.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "base/text.h"
#include "reigen/base/error.h"
#include "train/run/agree.h"
#include "train/start/resume.h"

namespace reigen::train {

namespace {

// metrics.jsonl has keys of its own in the line of a validation.
void require_free_names(const Figures& figures) {
  for (const char* own : ValidationMetrics::kKeys) {
    if (!figures.find(own)) continue;
    throw common(InvalidArgument(Report{.what = fmt::format("validation_step() logs \"{}\"", own),
                                        .got = "a key that each line of metrics.jsonl has",
                                        .fix = "log it under another name"}));
  }
}

double figure_of(const char* option, const Figures& figures, const std::string& name) {
  if (const auto value = figures.find(name)) return *value;
  std::vector<std::string> known;
  for (const auto& one : figures.values) known.push_back(one.first);
  const std::string near = base::nearest(name, known);
  throw common(InvalidArgument(Report{.what = fmt::format("{} names no figure of the validation", option),
                                      .got = name,
                                      .expected = fmt::format("{}", fmt::join(known, ", ")),
                                      .fix = near.empty() ? "choose one of these" : "did you mean " + near + "?"}));
}

}  // namespace

Figures Validation::run_over(std::int64_t most, bool may_end, bool is_trial) {
  data_.open_validation();
  if (!is_trial) callbacks_.begin_validation();
  const Figures figures =
      evaluation_.run({.data = data_.validation(),
                       .step = [&](const data::Samples& batch, bool /*counts*/) { run_.task.validation_step(batch); },
                       .most = most,
                       .max_bad = run_.config.data.max_bad,
                       .may_end = may_end});
  if (run_.stop && may_end) return figures;  // broken off
  require_free_names(figures);
  if (!is_trial) callbacks_.end_validation(figures);
  return figures;
}

void Validation::begin(const checkpoint::Checkpoint* found) {
  cadence_.emplace(config::parse_duration("validate.every", run_.config.validate.every), data_.loader().size());
  early_stop_ = EarlyStop(run_.config.stop);
  plateau_.emplace(model_.optimization().schedule());
  why_.clear();
  best_.remember({});
  last_is_noted_ = false;
  told_nan_.clear();
  const auto before =
      found != nullptr ? earlier(run_directory_of(found->path()) / "metrics.jsonl") : std::vector<Validated>();
  run_.validations.reset();
  if (watches()) run_.validations.emplace();
  if (found != nullptr) remember(before);
  if (has_ended() || run_.rollbacks > 0) return;
  if (!data_.has_validation()) {
    if (!watches()) return;
    const char* section = early_stop_.is_on() ? "stop" : best_.is_on() ? "checkpoint" : "optim";
    throw common(InvalidArgument(Report{.what = fmt::format("{}.monitor needs data for validation", section),
                                        .got = "none",
                                        .expected = "a DataModule with validation()",
                                        .fix = "give it such data, or leave the option out"}));
  }
  const std::int64_t wanted = run_.done == 0 ? run_.config.validate.sanity : 0;
  // A ManualTask may have left validation_step() out.
  const std::int64_t batches = std::max<std::int64_t>(wanted, watches() || run_.manual != nullptr ? 1 : 0);
  if (batches == 0) return;
  const Figures figures = run_over(batches * run_.task.validation_batch() * run_.data.size(), false, true);
  // These throw if there is no such figure.
  if (early_stop_.is_on()) figure_of("stop.monitor", figures, early_stop_.monitor());
  if (best_.is_on()) figure_of("checkpoint.monitor", figures, best_.monitor());
  if (plateau_->is_on()) figure_of("optim.monitor", figures, plateau_->monitor());
  if (wanted > 0)
    run_.say(fmt::format("validation tried out on {} test samples: {}", figures.terms, run_.task.describe(figures)));
}

bool Validation::is_due(const InEpoch& step) {
  return data_.has_validation() && cadence_->is_due(run_.done, step, run_.world);
}

void Validation::run_in_epoch(std::int64_t epoch) {
  const auto started = Progress::Clock::now();
  const bool is_whole = run_.position == data_.loader().size() || run_.position == 0;
  if (model_.ranks_differ() && !is_whole && !std::exchange(told_mean_, true)) {
    run_.say(
        fmt::format("note: to be validated, ranks were brought together after step {}, which strategy {} would not "
                    "have done there: the run goes on from their mean",
                    run_.done, run_.config.parallel.strategy.name));
  }
  const Figures figures = run_over(run_.config.validate.limit, true);
  const std::string prefix = fmt::format("epoch {}/{}{}: ", epoch + 1, data_.epochs_to_see(),
                                         is_whole ? "" : fmt::format(", step {}", run_.done));
  if (run_.stop) return run_.say(prefix + "validation broken off");
  run_.validation_is_due = false;
  note(figures, epoch, false);
  run_.say(prefix + run_.task.describe(figures));
  tell_nan("stop.monitor", early_stop_.is_on(), early_stop_.monitor(), figures);
  tell_nan("checkpoint.monitor", best_.is_on(), best_.monitor(), figures);
  tell_nan("optim.monitor", plateau_->is_on(), plateau_->monitor(), figures);
  if (best_.is_on()) best_.note(figure_of("checkpoint.monitor", figures, best_.monitor()));
  if (plateau_->is_on() && plateau_->note(figure_of("optim.monitor", figures, plateau_->monitor()))) {
    model_.optimizers().set_lr_factor(plateau_->factor());
    run_.say(fmt::format("after step {} the learning rate is multiplied by {:.6g}: {} stopped improving", run_.done,
                         plateau_->factor(), plateau_->monitor()));
  }
  if (early_stop_.is_on()) {
    early_stop_.note(figure_of("stop.monitor", figures, early_stop_.monitor()));
    judge();
    if (has_ended()) run_.say(fmt::format("the training ends after step {}: {}", run_.done, why_));
  }
  run_.console.exclude(Progress::Clock::now() - started);
}

// Says once for each option that the figure which it watches is not a number.
void Validation::tell_nan(const char* option, bool is_on, const std::string& monitor, const Figures& figures) {
  if (!is_on || !std::isnan(figures.find(monitor).value_or(0)) || !told_nan_.insert(option).second) return;
  run_.say(
      fmt::format("warning: {} after step {} is NaN; for {} it is worse than any number", monitor, run_.done, option));
}

// Rank 0 decides, so that all ranks end after the same step.
void Validation::judge() {
  const std::string reason = share_text(run_.world, early_stop_.reason());
  if (reason.empty()) return;
  why_ = reason;
  run_.total = run_.done;
}

// The validations before the checkpoint, on every rank: those that the checkpoint has and those in metrics.jsonl of its
// run, which may watch other figures.
std::vector<Validated> Validation::earlier(const std::filesystem::path& metrics) {
  std::vector<Validated> lines;
  bool is_there = true;
  if (run_.is_first()) {
    std::error_code ignored;
    is_there = std::filesystem::exists(metrics, ignored);
    lines = validated_in_file(metrics, run_.done);
  }
  lines = validated_in(share_text(run_.world, to_text(lines)));
  // The run may have been killed after the validation of this step was made.
  for (const Validated& one : lines) {
    if (one.step != run_.done) continue;
    if (one.is_last)
      last_is_noted_ = run_.done >= run_.total;
    else
      run_.validation_is_due = false;
  }
  if (watches() && !run_.validations && !is_there) {
    run_.say(
        fmt::format("warning: the values of earlier validations are not known, because the checkpoint lacks them and "
                    "there is no {}: stop.monitor, checkpoint.monitor and optim.schedule plateau begin anew",
                    metrics.string()));
  }
  return joined(run_.validations.value_or(std::vector<Validated>()), lines);
}

// For stop.monitor and the plateau, the validation at the end of a run does not count: it has its own samples
// (validate.limit), and would not have been made if the run had been longer.
void Validation::remember(const std::vector<Validated>& validations) {
  for (const Validated& one : validations) keep(one);
  const auto each = [&](const std::string& monitor, const auto& use) {
    for (const Validated& one : validations) {
      if (const auto value = one.values.find(monitor); value != one.values.end()) use(one, value->second);
    }
  };
  if (best_.is_on()) {
    std::vector<std::pair<std::int64_t, double>> values;
    each(best_.monitor(), [&](const Validated& one, double value) { values.emplace_back(one.step, value); });
    best_.remember(values);
  }
  if (plateau_->is_on()) {
    each(plateau_->monitor(), [&](const Validated& one, double value) {
      if (!one.is_last) plateau_->note(value);
    });
    model_.optimizers().set_lr_factor(plateau_->factor());
  }
  if (!early_stop_.is_on()) return;
  each(early_stop_.monitor(), [&](const Validated& one, double value) {
    if (one.is_last || has_ended()) return;
    early_stop_.note(value);
    judge();
  });
}

// It counts for checkpoint.monitor if it has the samples of the others.
void Validation::note_last(const Figures& figures, std::int64_t epoch) {
  if (!last_is_noted_) note(figures, epoch, true);
  if (best_.is_on() && run_.config.validate.limit == 0)
    best_.note(figure_of("checkpoint.monitor", figures, best_.monitor()));
}

// Keeps the figures that are watched, for the next checkpoints.
void Validation::keep(const Validated& one) {
  if (!run_.validations) return;
  Validated kept{.step = one.step, .is_last = one.is_last};
  for (const std::string& monitor : {early_stop_.monitor(), best_.monitor(), plateau_->monitor()}) {
    if (const auto value = one.values.find(monitor); value != one.values.end()) kept.values.insert(*value);
  }
  run_.validations->push_back(std::move(kept));
}

void Validation::note(const Figures& figures, std::int64_t epoch, bool is_last) {
  keep({.step = run_.done, .is_last = is_last, .values = {figures.values.begin(), figures.values.end()}});
  if (!run_.is_first()) return;
  lines_.write({.step = run_.done,
                .epoch = epoch,
                .figures = figures.values,
                .samples = figures.terms,
                .at_end = is_last,
                .time = seconds_since_1970()});
}

}  // namespace reigen::train
