#include "train/loop/late_steps.h"

#include <ATen/ATen.h>

#include <cmath>
#include <utility>

namespace reigen::train {

namespace {

// These numbers are added up: the loss, the ranks that request a stop, the ranks whose gradients are not finite, and
// the ranks for which train.max_time is over.
constexpr std::size_t kSums = 4;

}  // namespace

void LateSteps::add(Losses::Noted noted, const OwnLoss& own, const data::Batch& batch, Metrics::Step logged) {
  steps_.push_back({.noted = std::move(noted),
                    .batch = batch,
                    .numbers = tensor::LateValues(at::cat({own.on_device(), model_.optimization().late_values()})),
                    .logged = std::move(logged)});
  finish(1, 2);
}

void LateSteps::add_left_out(Losses::Noted noted) {
  steps_.push_back({.noted = std::move(noted)});
  finish(1, 2);
}

void LateSteps::finish() { finish(0, 0); }

// Finishes all steps except the newest. Of the newest `unread` steps the host does not read the numbers yet, and for
// the newest `unended` steps it does not wait for the sums over the ranks yet.
void LateSteps::finish(std::size_t unread, std::size_t unended) {
  for (std::size_t i = 0; i + unread < steps_.size(); ++i) {
    if (!steps_[i].was_read()) read(steps_[i]);
  }
  while (steps_.size() > unended) {
    Step step = std::move(steps_.front());
    steps_.pop_front();
    end(step);
  }
}

void LateSteps::read(Step& step) {
  const auto numbers = step.numbers->wait();  // loss, sum of squares, factor, stopped
  const double loss = numbers[0];
  const bool stopped = numbers[3] != 0;
  step.own = step.batch->terms > 0 ? loss / static_cast<double>(step.batch->terms) : 0;
  step.noted.metrics.grad_norm = std::sqrt(numbers[1]);
  // `norm` is reported only if the norm of some rank is not finite. If this rank's norm is finite, another rank's is
  // not, and this rank reports infinity.
  step.norm = std::isfinite(numbers[1]) ? HUGE_VAL : std::sqrt(numbers[1]);
  step.numbers.reset();
  losses_.take_logged(step.noted, run_.metrics.finish(std::move(*step.logged), !stopped));
  step.sums = run_.world.allocate(kSums * sizeof(double));
  auto* const sums = static_cast<double*>(step.sums.get());
  sums[0] = loss;
  sums[1] = run_.wants_stop() ? 1 : 0;
  sums[2] = stopped ? 1 : 0;
  sums[3] = run_.time_is_up() ? 1 : 0;
  step.added = run_.world.start_all_reduce(sums, sums, kSums, DataType::kFloat64, ReduceOp::kSum, {.tag = "loss"});
}

void LateSteps::end(Step& step) {
  if (!step.batch) return losses_.record(step.noted);
  step.added.wait();
  const auto* const sums = static_cast<const double*>(step.sums.get());
  if (sums[1] > 0) run_.stop = true;
  if (sums[3] > 0) run_.ends = true;
  step.noted.loss = run_.mean_of(sums[0], step.noted.terms);
  if (!std::isfinite(step.noted.loss) || sums[2] > 0) {
    not_finite_.meet_late({.step = step.noted.step, .loss = step.noted.loss, .own = step.own, .norm = step.norm},
                          *step.batch);
  }
  not_finite_.note_numbers(step.noted.step);
  if (const auto time = device_.of(step.noted.step)) {
    step.noted.metrics.forward_ms = time->forward * 1e3;
    step.noted.metrics.backward_ms = time->backward * 1e3;
    step.noted.metrics.optimizer_ms = time->optimizer * 1e3;
  }
  losses_.record(step.noted);
}

}  // namespace reigen::train
