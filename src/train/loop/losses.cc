#include "train/loop/losses.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

namespace reigen::train {

double Losses::add_up(double sum, Optimization::Gradients& gradients, const data::Batch& batch) {
  double sums[4] = {sum, run_.wants_stop() ? 1.0 : 0.0, gradients.finite ? 0.0 : 1.0, run_.time_is_up() ? 1.0 : 0.0};
  if (run_.world.size() > 1) {
    run_.world.all_reduce(sums, sums, 4, DataType::kFloat64, ReduceOp::kSum, {.tag = "loss"});
  }
  run_.stop = sums[1] > 0;
  run_.ends = sums[3] > 0;
  gradients.finite = sums[2] == 0;
  return run_.mean_of(sums[0], batch.global_terms);
}

Losses::Noted Losses::noted(const Step& step, const data::Batch& batch, const StepTime& time) const {
  Noted one{.step = run_.done, .loss = step.loss, .terms = batch.global_terms};
  if (run_.is_first()) {
    one.metrics = {.step = run_.done,
                   .epoch = batch.epoch,
                   .lr = model_.optimization().lr(),
                   .samples_per_s = static_cast<double>(batch.global_count) / time.step,
                   .step_ms = time.step * 1e3,
                   .data_ms = time.data * 1e3,
                   .forward_ms = time.forward * 1e3,
                   .backward_ms = time.backward * 1e3,
                   .comm_exposed_ms = time.exposed * 1e3,
                   .optimizer_ms = time.optimizer * 1e3,
                   .grad_norm = step.grad_norm,
                   .skipped = step.skipped,
                   .time = seconds_since_1970()};
    if (lines_.writes_order()) one.order = fmt::format("{}\n", fmt::join(data_.loader().global_indices(batch), " "));
  }
  return one;
}

void Losses::take_logged(Noted& one, NamedValues logged) {
  if (logged.size() != std::exchange(names_, logged.size())) {
    for (const char* own : StepMetrics::kKeys) {
      if (std::none_of(logged.begin(), logged.end(), [&](const auto& value) { return value.first == own; })) continue;
      InvalidArgument error(
          Report{.what = fmt::format("{}() logs \"{}\"", run_.manual != nullptr ? "manual_step" : "training_step", own),
                 .got = "a key that each line of metrics.jsonl has",
                 .fix = "log it under another name"});
      if (!run_.mesh) error.mark_common();  // with mesh.pp only ranks of the last stage log
      throw error;
    }
  }
  one.metrics.logged = std::move(logged);
}

void Losses::note(Noted one) {
  if (model_.ranks_differ()) return late_.push_back(std::move(one));
  record(one);
}

void Losses::add_up_late() {
  if (late_.empty()) return;
  std::vector<double> sums;
  for (const Noted& one : late_) sums.push_back(one.loss);
  sums.push_back(run_.time_is_up() ? 1 : 0);
  sums.push_back(run_.wants_stop() ? 1 : 0);
  run_.world.all_reduce(sums.data(), sums.data(), sums.size(), DataType::kFloat64, ReduceOp::kSum, {.tag = "losses"});
  run_.stop = sums.back() > 0;
  run_.ends = sums[late_.size()] > 0;
  for (std::size_t i = 0; i < late_.size(); ++i) {
    late_[i].loss = run_.mean_of(sums[i], late_[i].terms);
    record(late_[i]);
  }
  late_.clear();
}

void Losses::end_epoch(std::int64_t epoch) {
  const Figures figures = run_.metrics.gather(run_.world, run_.logs());
  callbacks_.end_epoch(figures);
  if (figures.values.empty() || !run_.is_first()) return;
  lines_.write(
      EpochMetrics{.step = run_.done, .epoch = epoch, .figures = figures.values, .time = seconds_since_1970()});
}

void Losses::record(Noted& one) {
  callbacks_.note_loss(one.step, one.loss);
  if (!run_.is_first()) return;
  one.metrics.loss = one.loss;
  lines_.write(one.metrics, one.order);
  run_.console.show_step(one.metrics.step, one.metrics.epoch, one.loss, one.metrics.samples_per_s);
}

}  // namespace reigen::train
