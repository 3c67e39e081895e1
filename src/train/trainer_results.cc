// What a run leaves behind: scores, the summary, the model.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <torch/nn/module.h>

#include <cmath>

#include "data/complete.h"
#include "reigen/checkpoint/convert.h"
#include "reigen/data/sampler.h"
#include "reigen/format/atomic_file.h"
#include "reigen/tensor/tensor_files.h"
#include "train/agree.h"
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
  const std::int64_t all = score_calls();
  bool ends = false;
  for (std::int64_t call = 0; call < all && !ends; ++call) {
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
    ends = may_end && call % kCallsTogether == kCallsTogether - 1 && hears_of_stop();
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
  std::int32_t asked = wants_stop() ? 1 : 0;
  if (world.size() > 1) {
    world.all_reduce(&asked, &asked, 1, DataType::kInt32, ReduceOp::kMax, {.tag = "wish to stop"}).wait();
  }
  stop = asked != 0;
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
  say(fmt::format("epoch {}/{}: {}", number + 1, epochs_to_see(), task.describe(*test)));
  if (progress) progress->exclude(Progress::Clock::now() - started);
  cycle.lap();
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
  MemoryUse use = count_memory(task.module(), *parallel, *optimization);
  use.activations = memory.activations;
  use.step = memory.step;
  summary.memory = gather_memory(use, formula_memory, world);
  return summary;
}

// Of this step or a later one; rank 0 looks for all.
bool Trainer::Impl::has_results() {
  const bool there = is_first() && steps_of_summary(directory / "summary.json") >= done;
  return !share_text(world, there ? "yes" : "").empty();
}

// Weights of which no rank has all: as they were saved, a tensor at a time.
void Trainer::Impl::write_model(const fs::path& path) const {
  if (parallel->gathers())
    checkpoint::write_whole(checkpoint::Weights(last_checkpoint()), path);
  else
    tensor::write_tensors(path, tensor::tensors_of(task.module()), {{"format", "pt"}});
}

void Trainer::Impl::write_average(const fs::path& path) {
  if (parallel->gathers()) {
    together(world, "averaged weights", [&] {
      if (is_first()) checkpoint::write_whole(checkpoint::Weights::averages_of(last_checkpoint()), path);
    });
    return;
  }
  auto averaged = optimization->swap_in_average();
  together(world, "averaged weights", [&] {
    if (is_first()) tensor::write_tensors(path, tensor::tensors_of(task.module()), {{"format", "pt"}});
  });
  averaged->end();
}

void Trainer::Impl::finish() {
  test = validate();
  const Summary summary = summarize();
  together(world, "results", [&] {
    if (!is_first()) return;
    if (metrics) metrics->flush();
    if (order) order->flush();
    write_model(directory / "model.safetensors");
  });
  if (optimization->has_average()) write_average(directory / "model_ema.safetensors");
  together(world, "summary", [&] {
    if (!is_first()) return;
    format::write_file_atomically(directory / "summary.json", std::string_view(to_json(summary)));
  });
  std::string text = to_text(summary);
  text.pop_back();
  say(text);
  // Rank 0 alone has not the weights that ranks divide over a network.
  if (!is_first() || parallel->gathers()) return;
  const at::NoGradGuard no_grad;
  task.module().eval();
  const std::string words = task.closing_words();
  if (!words.empty()) say(words);
}

}  // namespace reigen::train
