// A step that gave no number, and what train.not_finite does about it.
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <cmath>

#include "train/agree.h"
#include "train/trainer_impl.h"

namespace reigen::train {

namespace {

// Then the weights, not a batch, are to blame.
constexpr int kSkipsInARow = 10;
constexpr int kRollbacksInARow = 3;

}  // namespace

Report Trainer::Impl::not_finite(const char* what, double value, const data::Batch& batch,
                                 const std::string& whose) const {
  const std::string text = found || saved > 0 ? fmt::format("the checkpoint of step {} is whole: ", saved) : "";
  return {
      .what = fmt::format("the {} of step {} is not a finite number", what, done + 1),
      .got = fmt::format("{} in epoch {}, samples {} to {}; {}", value, batch.epoch + 1,
                         batch.position - batch.global_count + 1, batch.position, whose),
      .expected = "a finite number",
      .fix = fmt::format("{}go on with a smaller optim.lr (now {}), or look at the data", text, optimization->lr())};
}

// Every rank calls it in the same step, with the loss of all; own: this rank's. No weight has changed yet.
void Trainer::Impl::meet_no_number(double loss, const Optimization::Gradients& gradients, const data::Batch& batch,
                                   double own) {
  const bool lost = !std::isfinite(loss);
  const std::string whose = blame(own, batch);
  answer(not_finite(lost ? "loss" : "gradient norm", lost ? loss : gradients.norm.value_or(HUGE_VAL), batch, whose),
         batch);
}

// Every rank has its own gradients still, so none need be made again, from weights that are gone.
void Trainer::Impl::meet_no_number_behind_step(const data::Batch& batch) {
  const std::string whose = blame_own();
  answer(not_finite("gradient norm", NAN, batch, whose), batch);
}

// Returns where the step is to be skipped.
void Trainer::Impl::answer(Report report, const data::Batch& batch) {
  flush_what_can_be();
  const std::string& policy = config.train.not_finite;
  if (policy == "rollback") throw GivesNoNumber{std::move(report), {batch.epoch, batch.position}};
  if (policy == "skip") {
    if (++skipped_in_a_row <= kSkipsInARow) {
      return say(fmt::format("warning: {}: {}; skipped", report.what, report.got));
    }
    report.got += fmt::format("; the {} steps before it were skipped", kSkipsInARow);
  }
  throw common(Error(ExitCode::kNotANumber, std::move(report)));
}

// Batch statistics of a step that is left out are left out too: what gave no number may be in them for ever.
void Trainer::Impl::note_buffers() {
  if (config.train.not_finite != "skip") return;
  const at::NoGradGuard no_grad;
  const std::vector<at::Tensor> buffers = task.module().buffers();
  buffers_before.resize(buffers.size());
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    if (!buffers[i].defined()) continue;
    const bool fits = buffers_before[i].defined() && buffers_before[i].sizes() == buffers[i].sizes();
    if (!fits) buffers_before[i] = at::empty_like(buffers[i]);
    buffers_before[i].copy_(buffers[i]);
  }
}

void Trainer::Impl::take_buffers_back() {
  const at::NoGradGuard no_grad;
  const std::vector<at::Tensor> buffers = task.module().buffers();
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    if (buffers[i].defined()) buffers[i].resize_(buffers_before[i].sizes()).copy_(buffers_before[i]);
  }
}

// A step beyond the one that failed last gave numbers: what failed is behind the run.
void Trainer::Impl::note_numbers() {
  skipped_in_a_row = 0;
  if (done + 1 > failed_at) rollbacks_in_a_row = 0;
}

// Every rank calls it behind the same step. Throws where there is no checkpoint to go back to, or none that helps.
void Trainer::Impl::require_way_back(const GivesNoNumber& step) {
  finish_saving();
  std::string path;
  if (is_first() && saved > 0) path = last_checkpoint().string();
  path = share_text(world, path);
  Report report = step.report;
  if (path.empty()) {
    report.got += "; there is no checkpoint yet to go back to";
    throw common(Error(ExitCode::kNotANumber, std::move(report)));
  }
  failed_at = done + 1;
  if (++rollbacks_in_a_row > kRollbacksInARow) {
    report.got += fmt::format("; {} rollbacks before it did not help", kRollbacksInARow);
    throw common(Error(ExitCode::kNotANumber, std::move(report)));
  }
  say(fmt::format("warning: {}: {}; back to {}, that batch will be left out", report.what, report.got, path));
  left_out.push_back(step.place);
  config.run.resume = path;
  config.run.dir = directory.string();
}

// As a run that goes on begins; the ranks and their group stay.
void Trainer::Impl::roll_back() {
  optimization->leave_out();
  saver.reset();
  optimization.reset();
  parallel.reset();
  activations.reset();
  loader.reset();
  metrics.reset();
  order.reset();
  ++rollbacks;
  begin();
  make_progress();
}

bool Trainer::Impl::is_left_out(const data::Batch& batch) const {
  return std::find(left_out.begin(), left_out.end(), Place{batch.epoch, batch.position}) != left_out.end();
}

void Trainer::Impl::pass_over(const data::Batch& batch, double data_seconds) {
  done += 1;
  note({.loss = NAN, .terms = batch.global_terms, .skipped = true}, batch, {.step = cycle.lap(), .data = data_seconds});
}

}  // namespace reigen::train
