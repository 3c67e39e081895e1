// What a run leaves behind: scores, the summary, the model.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "checkpoint/directory.h"
#include "data/complete.h"
#include "reigen/checkpoint/convert.h"
#include "reigen/data/sampler.h"
#include "reigen/format/atomic_file.h"
#include "reigen/tensor/tensor_files.h"
#include "train/agree.h"
#include "train/memory_fit.h"
#include "train/precision.h"
#include "train/process_age.h"
#include "train/trainer_impl.h"

namespace reigen::train {

namespace fs = std::filesystem;

namespace {

constexpr std::int64_t kCallsTogether = 16;  // of a validation, between two looks whether any rank wants to stop

}  // namespace

void Trainer::Impl::write_trace() {
  say(trace->write(directory / "trace.json"));
  cycle.lap();
}

void Trainer::Impl::write_due_trace() {
  if (!trace || !trace->is_due(done) || trace_failed) return;
  trace_failed = !attempt("trace.json", [&] { write_trace(); });
}

Scores Trainer::Impl::validate(bool may_end) {
  open_test_data();
  const at::NoGradGuard no_grad;
  settle();
  auto averaged = optimization ? optimization->swap_in_average() : std::nullopt;
  const bool was_training = task.module().is_training();
  task.module().eval();
  const bool gathers = parallel && parallel->gathers();
  if (gathers) parallel->prepare_forward();
  const data::Range mine = data::share_of({0, test_data->size()}, world.rank(), world.size());
  Scores sum;
  const std::int64_t batch = task.score_batch();
  const std::int64_t calls = score_calls();
  bool ends = false;
  for (std::int64_t call = 0; call < calls && !ends; ++call) {
    const std::int64_t first = mine.begin + call * batch;
    std::vector<std::int64_t> indices;
    for (std::int64_t i = first; i < std::min(first + batch, mine.end); ++i) indices.push_back(i);
    Scores scores;
    if (!indices.empty()) {
      scores = score(indices);
    } else if (gathers) {
      score({0});  // weights are gathered in as many forwards as the rank with the most samples makes
    }
    sum.loss_sum += scores.loss_sum;
    if (scores.correct) sum.correct = sum.correct.value_or(0) + *scores.correct;
    sum.count += scores.count;
    const bool is_last = call + 1 == calls;  // what is complete is not thrown away
    ends = may_end && !is_last && call % kCallsTogether == kCallsTogether - 1 && hears_of_stop();
  }
  task.module().train(was_training);
  if (averaged) averaged->end();
  // A rank without a sample does not know whether there is an accuracy.
  double sums[4] = {sum.loss_sum, static_cast<double>(sum.correct.value_or(0)), static_cast<double>(sum.count),
                    sum.correct ? 1.0 : 0.0};
  world.all_reduce(sums, sums, 4, DataType::kFloat64, ReduceOp::kSum, {.tag = "validation"}).wait();
  Scores all{.loss_sum = sums[0], .count = std::llround(sums[2])};
  if (sums[3] > 0) all.correct = std::llround(sums[1]);
  return all;
}

// A scheduler that warns two minutes before the end may do so in the middle of a long validation, which can be had
// again.
bool Trainer::Impl::hears_of_stop() {
  stop = any_wishes_to_stop(world, wants_stop());
  return stop;
}

Scores Trainer::Impl::score(const std::vector<std::int64_t>& indices) {
  const data::Samples samples =
      data::complete(test_data->gather(indices), *test_data, static_cast<std::int64_t>(indices.size()));
  const auto autocast = compute_type(config.train.precision);
  return task.score_of(samples);
}

// Of the rank with the most.
std::int64_t Trainer::Impl::score_calls() const {
  std::int64_t most = 0;
  for (int rank = 0; rank < world.size(); ++rank) {
    const data::Range one = data::share_of({0, test_data->size()}, rank, world.size());
    most = std::max(most, (one.end - one.begin + task.score_batch() - 1) / task.score_batch());
  }
  return most;
}

void Trainer::Impl::validate_and_say(std::int64_t number) {
  const auto started = Progress::Clock::now();
  test = validate(true);
  if (stop) return say(fmt::format("epoch {}/{}: validation broken off", number + 1, epochs_to_see()));
  note_validation(number);
  say(fmt::format("epoch {}/{}: {}", number + 1, epochs_to_see(), task.describe(*test)));
  if (progress) progress->exclude(Progress::Clock::now() - started);
  cycle.lap();
}

void Trainer::Impl::note_validation(std::int64_t number) {
  if (!metrics) return;
  metrics->write({.step = done,
                  .epoch = number,
                  .test_loss = test->loss(),
                  .test_accuracy = test->accuracy(),
                  .test_samples = test->count,
                  .more = task.more_figures(*test),
                  .time = seconds_since_1970()});
  tell_trouble(metrics->trouble());
}

Summary Trainer::Impl::summarize() {
  Summary summary{.task = task.name(),
                  .backend = world.backend(),
                  .precision = config.train.precision,
                  .strategy = config.parallel.strategy,
                  .shard = parallel ? parallel::to_text(parallel->shard()) : "none",
                  .world_size = world.size(),
                  .bytes_given = parallel ? parallel->bytes_given() : 0,
                  .steps = done,
                  .first_step = done - static_cast<std::int64_t>(times.count()),
                  .epochs = config.train.epochs,
                  .global_batch = loader->global_batch(),
                  .samples_per_step = samples_per_step(),
                  .test = *test,
                  .test_text = task.describe(*test),
                  .test_figures = task.more_figures(*test),
                  .mean = times.mean(),
                  .first_step_s = first_step_s,
                  .wall_s = process_age_seconds(),
                  .directory = directory};
  if (times.count() > 0) {
    summary.samples_per_s = static_cast<double>(samples_per_step()) / times.median_step();
    summary.samples_per_s_overall = times.overall_samples_per_s();
  }
  const std::int64_t peak = peak_memory_bytes();
  summary.peak_rss_bytes.resize(static_cast<std::size_t>(world.size()));
  world.all_gather(&peak, summary.peak_rss_bytes.data(), 1, DataType::kInt64, {.tag = "peak memory"}).wait();
  MemoryUse use = count_memory(task.module(), *parallel);
  use.activations = memory.activations;
  use.step = memory.step;
  summary.memory = gather_memory(use, formula_memory, world);
  return summary;
}

// Of this step or a later one; rank 0 looks for all.
bool Trainer::Impl::has_results() {
  bool there = false;
  if (is_first()) {
    std::error_code ignored;
    there = steps_of_summary(directory / "summary.json") >= done &&
            fs::exists(directory / "model.safetensors", ignored) &&
            (!optimization->has_average() || fs::exists(directory / "model_ema.safetensors", ignored));
  }
  return !share_text(world, there ? "yes" : "").empty();
}

bool Trainer::Impl::attempt(const std::string& what, const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    if (!error.is_common()) throw;
    say(fmt::format("warning: {} is not written: {}", what, error.what()));
    not_written.push_back({what, error.exit_code(), error.what()});
    return false;
  }
  std::erase_if(not_written, [&](const Lost& one) { return one.what == what; });  // a second try
  left_behind.push_back(what);
  return true;
}

namespace {

std::string in_one_line(std::string text) {
  for (std::size_t at = 0; (at = text.find('\n', at)) != std::string::npos;) {
    const std::size_t next = text.find_first_not_of("\n ", at);
    text.replace(at, next == std::string::npos ? next : next - at, "; ");
  }
  return text;
}

}  // namespace

// How a run goes on from the newest checkpoint; empty: there is none.
std::string Trainer::Impl::way_back() const {
  if (saved <= 0) return "";
  const fs::path path = last_checkpoint();
  std::error_code ignored;
  if (!fs::exists(path, ignored) && !ignored) return "";
  const bool is_own = fs::equivalent(path.parent_path(), directory / "checkpoints", ignored);
  return is_own ? fmt::format("a run goes on from the checkpoint of step {} with --run.resume true", saved)
                : fmt::format("a run goes on from the checkpoint of step {} with --run.resume {}", saved,
                              base::quote_shell(path.string()));
}

// Nothing of what a run made is lost in silence, and what is there is named.
void Trainer::Impl::require_all_saved() {
  if (not_written.empty()) return;
  std::vector<std::string> reasons;
  for (const Lost& one : not_written) reasons.push_back(fmt::format("no {}: {}", one.what, in_one_line(one.why)));
  std::vector<std::string> ways;
  const bool is_of_disk = std::any_of(not_written.begin(), not_written.end(),
                                      [](const Lost& one) { return one.code == ExitCode::kIo; });  // or full
  if (is_of_disk) ways.push_back("free space, or mend the disk");
  if (has_model) {
    ways.push_back(
        fmt::format("the weights after step {} are in {}", done, (directory / "model.safetensors").string()));
  }
  if (const std::string way = way_back(); !way.empty()) ways.push_back(way);
  if (!left_behind.empty()) ways.push_back(fmt::format("saved: {}", fmt::join(left_behind, ", ")));
  throw common(Error(not_written.front().code,
                     Report{.what = fmt::format("not all of the run could be saved after step {} of {}", done, total),
                            .got = fmt::format("{}", fmt::join(reasons, "\n       ")),
                            .fix = fmt::format("{}", fmt::join(ways, "; "))}));
}

// Weights of which no rank has all: as they were saved, a tensor at a time; where they could not be, from memory, if
// they fit there.
void Trainer::Impl::write_model(const fs::path& path) {
  const bool of_checkpoint = parallel->gathers() && saved == done;
  if (parallel->gathers() && !of_checkpoint) {
    require_room("the whole model, of which there is no checkpoint,", whole_weights(), "", world);
    parallel->gather_weights();
  }
  together(world, "model", [&] {
    if (!is_first()) return;
    if (of_checkpoint)
      checkpoint::write_whole(checkpoint::Weights(last_checkpoint()), path);
    else
      tensor::write_tensors(path, tensor::tensors_of(task.module()), metadata);
  });
}

void Trainer::Impl::write_average(const fs::path& path) {
  if (parallel->gathers()) {
    together(world, "averaged weights", [&] {
      if (saved != done) throw IoError("ranks hold parts of it, and there is no checkpoint to put it together from");
      if (is_first()) checkpoint::write_whole(checkpoint::Weights::averages_of(last_checkpoint()), path);
    });
    return;
  }
  auto averaged = optimization->swap_in_average();
  try {
    together(world, "averaged weights", [&] {
      if (is_first()) tensor::write_tensors(path, tensor::tensors_of(task.module()), metadata);
    });
  } catch (const Error& error) {
    if (error.is_common()) averaged->end();
    throw;
  }
  averaged->end();
}

// Of several older checkpoints the newest stays whatever comes; of a run that was stopped all.
void Trainer::Impl::make_room_for_models() {
  if (!is_first() || saved <= 0 || done < total) return;
  const auto bytes = static_cast<std::uint64_t>(whole_weights() * (optimization->has_average() ? 2 : 1));
  try {
    const auto gone = checkpoint::make_room(directory / "checkpoints", bytes + bytes / 64 + (64 << 10), saved);
    if (gone.empty()) return;
    say(fmt::format("note: older checkpoints (of steps {}) are deleted, to make room for the trained weights",
                    fmt::join(gone, ", ")));
  } catch (const IoError& error) {
    say(fmt::format("warning: older checkpoints stay: {}", error.what()));
  }
}

void Trainer::Impl::write_models() {
  settle();
  make_room_for_models();
  has_model = attempt("model.safetensors", [&] { write_model(directory / "model.safetensors"); });
  if (!optimization->has_average()) return;
  attempt("model_ema.safetensors", [&] { write_average(directory / "model_ema.safetensors"); });
}

void Trainer::Impl::write_results() {
  test = validate();
  note_validation(std::max<std::int64_t>(0, position > 0 ? epoch : epoch - 1));
  const Summary summary = summarize();
  std::string text = to_text(summary);
  text.pop_back();
  say(text);
  together(world, "summary", [&] {
    if (!is_first()) return;
    format::write_file_atomically(directory / "summary.json", std::string_view(to_json(summary)));
  });
}

void Trainer::Impl::finish() {
  if (!has_model) write_models();
  attempt("summary.json", [&] { write_results(); });
  attempt("metrics.jsonl", [&] {
    together(world, "metrics", [&] {
      if (metrics) metrics->flush();
      if (order) order->flush();
    });
  });
  say_closing_words();
  require_all_saved();
}

// For people alone.
void Trainer::Impl::say_closing_words() {
  // Rank 0 alone has not the weights that ranks divide over a network.
  if (!is_first() || parallel->gathers()) return;
  try {
    const at::NoGradGuard no_grad;
    task.module().eval();
    const std::string words = task.closing_words();
    if (!words.empty()) say(words);
  } catch (const std::exception& error) {
    say(fmt::format("warning: no closing words of {}: {}", task.name(), error.what()));
  }
}

}  // namespace reigen::train
