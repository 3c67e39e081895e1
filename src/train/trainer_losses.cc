// What steps gave: the losses of all ranks, added up in each step, or for some steps together where ranks step by
// themselves and none is to wait for another.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

#include "train/trainer_impl.h"

namespace reigen::train {

bool Trainer::Impl::losses_come_late() const { return parallel->ranks_differ(); }

// The loss of the global batch, from every rank's sum over its terms. Learns whether any rank wants to stop, and
// whether the gradients of all are numbers.
double Trainer::Impl::add_up(double loss, Optimization::Gradients& gradients, const data::Batch& batch) {
  double sums[3] = {loss, wants_stop() ? 1.0 : 0.0, gradients.finite ? 0.0 : 1.0};
  if (world.size() > 1) world.all_reduce(sums, sums, 3, DataType::kFloat64, ReduceOp::kSum, {.tag = "loss"}).wait();
  stop = sums[1] > 0;
  gradients.finite = sums[2] == 0;
  return sums[0] / static_cast<double>(batch.global_terms);
}

// A rank that steps by itself: it ends before its weights change, and what it says ends the others.
void Trainer::Impl::require_finite(double loss, const Optimization::Gradients& gradients, const data::Batch& batch) {
  if (std::isfinite(loss) && gradients.finite) return;
  const char* what = std::isfinite(loss) ? "gradient norm" : "loss";
  const double value = std::isfinite(loss) ? gradients.norm.value_or(HUGE_VAL) : loss;
  throw Error(ExitCode::kNotANumber, not_finite(what, value, batch, blame_alone(loss)));
}

void Trainer::Impl::note(Made one, const data::Batch& batch, const StepTime& time) {
  if (is_first()) {
    one.metrics = {.step = done,
                   .epoch = batch.epoch,
                   .lr = optimization->lr(),
                   .samples_per_s = static_cast<double>(batch.global_count) / time.step,
                   .step_ms = time.step * 1e3,
                   .data_ms = time.data * 1e3,
                   .forward_ms = time.forward * 1e3,
                   .backward_ms = time.backward * 1e3,
                   .comm_exposed_ms = time.exposed * 1e3,
                   .optimizer_ms = time.optimizer * 1e3,
                   .grad_norm = one.metrics.grad_norm,
                   .skipped = one.skipped,
                   .time = seconds_since_1970()};
    if (order) one.order = fmt::format("{}\n", fmt::join(loader->global_indices(batch), " "));
  }
  if (losses_come_late()) return late.push_back(std::move(one));
  record(one);
}

void Trainer::Impl::add_up_late() {
  if (late.empty()) return;
  std::vector<double> sums;
  for (const Made& one : late) sums.push_back(one.loss);
  sums.push_back(wants_stop() ? 1 : 0);
  world.all_reduce(sums.data(), sums.data(), sums.size(), DataType::kFloat64, ReduceOp::kSum, {.tag = "losses"}).wait();
  stop = sums.back() > 0;
  for (std::size_t i = 0; i < late.size(); ++i) {
    late[i].loss = sums[i] / static_cast<double>(late[i].terms);
    record(late[i]);
  }
  late.clear();
}

void Trainer::Impl::record(Made& one) {
  if (!is_first()) return;
  one.metrics.loss = one.loss;
  metrics->write(one.metrics);
  if (order) order->append(one.order);
  tell_trouble(metrics->trouble());
  progress->step(one.metrics.step, one.metrics.epoch, one.loss, one.metrics.samples_per_s);
}

}  // namespace reigen::train
