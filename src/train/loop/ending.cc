#include "train/loop/ending.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "comm/core_share_of.h"
#include "reigen/format/atomic_file.h"
#include "reigen/schedule/picture.h"
#include "reigen/train/gemm_peak.h"
#include "train/model/divide_model.h"
#include "train/model/precision.h"
#include "train/run/agree.h"
#include "train/run/process_age.h"

namespace reigen::train {

Ending::Ending(Run& run, const RunFiles& files, const RunData& data, TrainedModel& model, StepLines& lines,
               Checkpoints& checkpoints, Validation& validation, const BestCheckpoints& best, const MemoryWatch& memory,
               const StepTimes& times, Outcome& outcome)
    : run_(run),
      files_(files),
      data_(data),
      model_(model),
      lines_(lines),
      checkpoints_(checkpoints),
      validation_(validation),
      best_(best),
      memory_(memory),
      times_(times),
      outcome_(outcome),
      models_(run, files, data, model, checkpoints, outcome) {}

void Ending::save_last() {
  const bool has_ended = run_.done >= run_.total;
  checkpoints_.wait();  // make_room() keeps the newest whole checkpoint, so a save in progress must end first
  const bool is_due = checkpoints_.asked_to_save() != run_.done;
  if (has_ended && is_due) {
    checkpoints_.require_finite();
    if (!model_.is_in_parts()) models_.write();  // otherwise it is put together from the checkpoint
  }
  if (is_due) checkpoints_.save();
  checkpoints_.wait();
  if (checkpoints_.saved() == run_.done) return;
  if (!models_.has_model()) models_.write();
  if (has_ended && models_.has_model() && checkpoints_.lacks_room()) checkpoints_.save_last_in_little_room();
  if (checkpoints_.saved() != run_.done) note_lost_checkpoint(checkpoints_.why_not());
}

void Ending::give_up() {
  if (!models_.has_model()) models_.write();
  note_lost_checkpoint(fmt::format("{} checkpoints in a row could not be written; {}", checkpoints_.failed_in_a_row(),
                                   checkpoints_.why_not()));
  require_complete();
}

void Ending::note_lost_checkpoint(const std::string& why) {
  outcome_.note_lost(fmt::format("checkpoint of step {}", run_.done), ExitCode::kIo, why);
}

void Ending::require_complete() const {
  if (outcome_.is_complete()) return;
  std::vector<std::string> ways;
  if (models_.has_model()) {
    ways.push_back(fmt::format("the weights after step {} are in {}", run_.done, models_.path().string()));
  }
  if (const std::string way = checkpoints_.way_back(); !way.empty()) ways.push_back(way);
  throw outcome_.error(fmt::format("not all of the run could be saved after step {} of {}", run_.done, run_.total),
                       std::move(ways));
}

void Ending::finish() {
  if (!models_.has_model() && run_.config.run.fast_dev == 0) models_.write();
  outcome_.attempt("summary.json", [&] { write_results(); });
  outcome_.attempt("metrics.jsonl", [&] { together(run_.world, "metrics", [&] { lines_.flush(); }); });
  say_closing_words();
  require_complete();
}

void Ending::write_results() {
  if (data_.has_validation()) {
    figures_ = validation_.run();
    validation_.note_last(*figures_, std::max<std::int64_t>(0, run_.position > 0 ? run_.epoch : run_.epoch - 1));
    lines_.flush_what_can_be();  // before summary.json, which says that a run has ended
  }
  const Summary summary = summarize();
  std::string text = to_text(summary);
  text.pop_back();
  run_.say(text);
  together(run_.world, "summary", [&] {
    if (!run_.is_first()) return;
    format::write_file_atomically(files_.directory() / "summary.json", std::string_view(to_json(summary)));
  });
}

// Writes pipeline.svg, a picture of the last step.
std::optional<Summary::Pipeline> Ending::draw_pipeline() {
  const parallel::Pipeline& pipeline = model_.pipeline();
  if (!pipeline || pipeline.last().micro_batches == 0) return std::nullopt;
  const int micro_batches = pipeline.last().micro_batches;
  const PipelineTimes times = times_of(pipeline, micro_batches);
  const std::string& schedule = run_.config.mesh.schedule;
  together(run_.world, "picture of the pipeline", [&] {
    if (!run_.is_first()) return;
    const std::string title = fmt::format("{}, {} micro-batches, step {}", schedule, micro_batches, run_.done);
    format::write_file_atomically(files_.directory() / "pipeline.svg",
                                  schedule::to_svg(times.measured, {.title = title, .unit = "s", .row = "pp"}));
  });
  return Summary::Pipeline{.schedule = schedule,
                           .micro_batches = micro_batches,
                           .bubble = times.measured.bubble,
                           .predicted = times.predicted.bubble};
}

std::optional<Summary::Flops> Ending::flops_at(double samples_per_s) {
  const double of_sample = run_.task.flops_of_sample();
  if (of_sample <= 0) return std::nullopt;
  const std::string& precision = run_.config.train.precision;
  const at::ScalarType type = precision == "fp64"   ? at::kDouble
                              : precision == "bf16" ? at::kBFloat16
                              : precision == "fp16" ? at::kHalf
                                                    : at::kFloat;
  const double peak = measure_gemm_peak(run_.world, run_.device, type);
  if (peak <= 0) return std::nullopt;
  return Summary::Flops{.of_sample = of_sample, .peak = peak, .utilisation = of_sample * samples_per_s / peak};
}

Summary Ending::summarize() {
  Summary summary{.task = run_.name(),
                  .backend = run_.world.backend(),
                  .precision = run_.config.train.precision,
                  .strategy = run_.config.parallel.strategy.name,
                  .shard = parallel::to_text(model_.parallel().shard()),
                  .world_size = run_.world.size(),
                  .bytes_given = model_.parallel().bytes_given(),
                  .steps = run_.done,
                  .first_step = run_.done - static_cast<std::int64_t>(times_.count()),
                  .epochs = run_.config.train.epochs,
                  .global_batch = data_.loader().global_batch(),
                  .samples_per_step = data_.samples_per_step(),
                  .validation = figures_,
                  .validation_text = figures_ ? run_.task.describe(*figures_) : "",
                  .mean = times_.mean(),
                  .data_workers = data_.loader().workers(),
                  .cores = comm::core_share_of(run_.world).threads,
                  .first_step_s = first_step_s_,
                  .wall_s = process_age_seconds(),
                  .directory = files_.directory()};
  if (times_.count() > 0) {
    summary.samples_per_s = static_cast<double>(data_.samples_per_step()) / times_.median_step();
    summary.samples_per_s_overall = times_.overall_samples_per_s();
    summary.terms_per_s = summary.samples_per_s * times_.terms_of_sample();
  }
  const std::int64_t peak = peak_memory_bytes();
  summary.peak_rss_bytes.resize(static_cast<std::size_t>(run_.world.size()));
  run_.world.all_gather(&peak, summary.peak_rss_bytes.data(), 1, DataType::kInt64, {.tag = "peak memory"});
  summary.memory = memory_.report(model_, run_.world);
  if (!best_.list().empty()) {
    const BestCheckpoint& best = best_.list().front();
    summary.best = {
        .monitor = best_.monitor(), .value = best.value, .step = best.step, .path = best_.path_of(best.step)};
  }
  summary.pipeline = draw_pipeline();
  if (times_.count() > 0) summary.flops = flops_at(summary.samples_per_s);
  return summary;
}

// Prints the task's closing words. They are only for people, so an error in them causes only a warning.
void Ending::say_closing_words() {
  // If no rank has all weights, rank 0 cannot run the model alone.
  if (!run_.is_first() || model_.is_in_parts() || run_.mesh) return;
  try {
    const at::NoGradGuard no_grad;
    model_.module().eval();
    const auto& train = run_.config.train;  // weights of several types need autocast
    const auto autocast = train.weights == "own" ? nullptr : compute_type(train.precision, run_.device);
    const std::string words = run_.task.closing_words();
    if (!words.empty()) run_.say(words);
  } catch (const std::exception& error) {
    run_.say(fmt::format("warning: no closing words of {}: {}", run_.name(), error.what()));
  }
}

void Ending::note_first_step() { first_step_s_ = process_age_seconds(); }

}  // namespace reigen::train
