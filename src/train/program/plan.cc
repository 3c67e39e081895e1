#include "train/program/plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "reigen/base/error.h"
#include "train/optimizer/learning_rate.h"

namespace reigen::train {
namespace {

struct Length {
  std::int64_t samples = 0;
  std::int64_t batch = 0;
  std::int64_t of_epoch = 0;  // steps
  std::int64_t total = 0;     // steps

  // The samples that the run has seen before this step. The last batch of an epoch may be smaller.
  std::int64_t seen(std::int64_t step) const {
    return step / of_epoch * samples + std::min(step % of_epoch * batch, samples);
  }
};

// Ranks along the other axes of a mesh than that of data parallelism compute on the same samples.
int data_ranks(const Config& config, int ranks) {
  const std::int64_t same = config.mesh.tp * config.mesh.cp * config.mesh.pp;
  if (ranks % same == 0) return static_cast<int>(ranks / same);
  throw InvalidArgument(
      Report{.what = "run.plan: the mesh does not fit the number of ranks",
             .got = fmt::format("{} of which {} compute on the same samples", base::counted(ranks, "rank"), same),
             .fix = fmt::format("-n {}, or a multiple of it", same)});
}

Length length_of(const Config& config, const PlanOf& of, int data_ranks) {
  Length length{.samples = of.samples, .batch = config.train.global_batch.value_or(of.batch_per_rank * data_ranks)};
  if (config.data.limit > 0)
    length.samples = of.samples > 0 ? std::min(of.samples, config.data.limit) : config.data.limit;
  if (length.samples == 0) {
    throw InvalidArgument(Report{.what = "run.plan: the number of training samples is not known without the data",
                                 .fix = "say it with --data.limit N"});
  }
  if (config.train.overfit > 0) length.samples = std::min(length.samples, config.train.overfit * length.batch);
  length.of_epoch = (length.samples + length.batch - 1) / length.batch;
  length.total = config.train.epochs * length.of_epoch;
  if (config.train.max_steps > 0) length.total = std::min(length.total, config.train.max_steps);
  return length;
}

std::string row_of(const Length& length, std::int64_t step, const std::string& rate, const std::string& what) {
  const double epoch = static_cast<double>(step / length.of_epoch) +
                       static_cast<double>(step % length.of_epoch) / static_cast<double>(length.of_epoch);
  std::string row = fmt::format("{:>9} {:>8.2f} {:>12}   {:<12} {}", step, epoch, length.seen(step), rate, what);
  row.erase(row.find_last_not_of(' ') + 1);
  return row + "\n";
}

}  // namespace

std::string plan_of(const Config& config, const PlanOf& of) {
  const int ranks = data_ranks(config, of.ranks);
  const Length length = length_of(config, of, ranks);
  const LearningRate rate(config.optim, {.total_steps = length.total,
                                         .global_batch = length.batch,
                                         .world_size = ranks,
                                         .steps_of_epoch = length.of_epoch});
  const optim::ScheduleOptions& schedule = rate.schedule();
  std::string text = fmt::format("{}: global batch {} on {}, {} samples and {} an epoch, {}\n", of.name, length.batch,
                                 base::counted(of.ranks, "rank"), length.samples,
                                 base::counted(length.of_epoch, "step"), base::counted(length.total, "step"));
  text += fmt::format("{:>9} {:>8} {:>12}   {}\n", "step", "epoch", "samples", "rate");
  const auto at = [&](std::int64_t step) { return rate.at(std::clamp<std::int64_t>(step, 0, length.total - 1)); };
  std::int64_t last = -1;  // step of the last line
  for (std::int64_t step = 0; step < length.total; ++step) {
    const double now = at(step);
    const bool changes = now != at(step - 1);
    const bool began = at(step - 1) == at(step - 2) && last != step - 1;
    const bool ended = now == at(step + 1) && step >= schedule.warmup_steps;
    const bool warm_up_ends = step == schedule.warmup_steps;
    if (step > 0 && !warm_up_ends && !(changes && (began || ended || step % length.of_epoch == 0))) continue;
    last = step;
    std::string what;
    if (step < schedule.warmup_steps)
      what = fmt::format("warm-up to {:.6g} at step {}", at(schedule.warmup_steps), schedule.warmup_steps);
    else if (warm_up_ends && schedule.warmup_steps > 0)
      what = "end of the warm-up";
    text += row_of(length, step, fmt::format("{:.6g}", now), what);
  }
  text += row_of(length, length.total, "", "end");
  if (schedule.kind == optim::Schedule::kPlateau) {
    text += fmt::format("optim.schedule plateau: besides, the rate is multiplied by {} when {} stops improving\n",
                        schedule.gamma, schedule.monitor);
  }
  return text;
}

}  // namespace reigen::train
