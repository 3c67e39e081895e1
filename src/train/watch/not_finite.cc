#include "train/watch/not_finite.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "train/run/agree.h"

namespace reigen::train {

namespace {

// After so many skipped steps or so many rollbacks in a row the run ends, because then the weights are to blame and not
// one batch.
constexpr int kSkipsInARow = 10;
constexpr int kRollbacksInARow = 3;

}  // namespace

Report NotFinite::report(const char* what, double value, std::int64_t step, const data::Batch& batch,
                         const std::string& whose) const {
  const std::int64_t saved = checkpoints_.saved();
  const std::string text = saved >= 0 ? fmt::format("the checkpoint of step {} is whole: ", saved) : "";
  return {.what = fmt::format("the {} of step {} is not a finite number", what, step),
          .got = fmt::format("{} in epoch {}, samples {} to {}; {}", value, batch.epoch + 1,
                             batch.position - batch.global_count + 1, batch.position, whose),
          .expected = "a finite number",
          .fix = fmt::format("{}go on with a smaller optim.lr (now {}), or look at the data", text,
                             model_.optimization().lr())};
}

void NotFinite::meet(double loss, const Optimization::Gradients& gradients, const data::Batch& batch, double own) {
  const bool lost = !std::isfinite(loss);
  const std::string whose = blame_.of_step(own, batch);
  const std::int64_t step = run_.done + 1;
  answer(report(lost ? "loss" : "gradient norm", lost ? loss : gradients.norm.value_or(HUGE_VAL), step, batch, whose),
         step, batch);
}

// Each rank still has its own gradients, so they are not computed again. A new backward with the changed weights would
// give different gradients.
void NotFinite::meet_after_step(const data::Batch& batch) {
  const std::string whose = blame_.of_own_gradients();
  const std::int64_t step = run_.done + 1;
  answer(report("gradient norm", NAN, step, batch, whose), step, batch);
}

void NotFinite::meet_in_manual_step(const std::string& optimizer, const Optimization::Gradients& gradients, double lr,
                                    const data::Batch& batch) {
  const std::int64_t step = run_.done + 1;
  Report text = report("gradient norm", gradients.norm.value_or(NAN), step, batch,
                       fmt::format("optimizer {}, gradients are means over the ranks", optimizer));
  text.fix = fmt::format("go on with a smaller rate of {} (now {}), or look at the data", optimizer, lr);
  fail(std::move(text), step, batch);
}

void NotFinite::meet_late(const LateNumbers& numbers, const data::Batch& batch) {
  const bool lost = !std::isfinite(numbers.loss);
  const std::string whose = blame_.of_past_step(numbers.own, batch, numbers.step);
  fail(report(lost ? "loss" : "gradient norm", lost ? numbers.loss : numbers.norm, numbers.step, batch, whose),
       numbers.step, batch);
}

void NotFinite::require_own(double loss, const Optimization::Gradients& gradients, const data::Batch& batch) {
  if (std::isfinite(loss) && gradients.finite) return;
  const char* what = std::isfinite(loss) ? "gradient norm" : "loss";
  const double value = std::isfinite(loss) ? gradients.norm.value_or(HUGE_VAL) : loss;
  throw Error(ExitCode::kNotANumber, report(what, value, run_.done + 1, batch, blame_.of_this_rank(loss)));
}

// Returns if the step is to be skipped, else throws.
void NotFinite::answer(Report report, std::int64_t step, const data::Batch& batch) {
  if (run_.config.train.not_finite == "skip") {
    lines_.flush_what_can_be();
    if (++skipped_in_a_row_ <= kSkipsInARow) {
      return run_.say(fmt::format("warning: {}: {}; skipped", report.what, report.got));
    }
    report.got += fmt::format("; the {} steps before it were skipped", kSkipsInARow);
  }
  fail(std::move(report), step, batch);
}

void NotFinite::fail(Report report, std::int64_t step, const data::Batch& batch) {
  lines_.flush_what_can_be();
  if (run_.config.train.not_finite == "rollback") throw GoBack{std::move(report), step, batch.epoch, batch.position};
  throw common(Error(ExitCode::kNotANumber, std::move(report)));
}

// Saves the buffers, because skipping a step must also undo its batch statistics. Otherwise a NaN would remain in the
// buffers for ever.
void NotFinite::begin_step() {
  if (run_.config.train.not_finite != "skip") return;
  const at::NoGradGuard no_grad;
  const std::vector<at::Tensor> buffers = model_.module().buffers();
  buffers_.resize(buffers.size());
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    if (!buffers[i].defined()) continue;
    const bool fits = buffers_[i].defined() && buffers_[i].sizes() == buffers[i].sizes();
    if (!fits) buffers_[i] = at::empty_like(buffers[i]);
    buffers_[i].copy_(buffers[i]);
  }
}

void NotFinite::skip() {
  model_.optimizers().leave_out();
  const at::NoGradGuard no_grad;
  const std::vector<at::Tensor> buffers = model_.module().buffers();
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    if (buffers[i].defined()) buffers[i].resize_(buffers_[i].sizes()).copy_(buffers_[i]);
  }
}

// If a step after the one that caused the newest rollback is finite, the count of rollbacks begins anew.
void NotFinite::note_numbers(std::int64_t step) {
  skipped_in_a_row_ = 0;
  if (step > failed_at_) rollbacks_in_a_row_ = 0;
}

void NotFinite::go_back(const GoBack& step) {
  checkpoints_.wait();
  std::string path;
  if (run_.is_first() && checkpoints_.saved() > 0) path = checkpoints_.last().string();
  path = share_text(run_.world, path);
  Report report = step.report;
  if (path.empty()) {
    report.got += "; there is no checkpoint yet to go back to";
    throw common(Error(ExitCode::kNotANumber, std::move(report)));
  }
  failed_at_ = step.step;
  if (++rollbacks_in_a_row_ > kRollbacksInARow) {
    report.got += fmt::format("; {} rollbacks before it did not help", kRollbacksInARow);
    throw common(Error(ExitCode::kNotANumber, std::move(report)));
  }
  run_.say(fmt::format("warning: {}: {}; back to {}, that batch will be left out", report.what, report.got, path));
  left_out_.push_back({step.epoch, step.position});
  run_.config.run.resume = path;
}

bool NotFinite::is_left_out(const data::Batch& batch) const {
  return std::find(left_out_.begin(), left_out_.end(), LeftOut{batch.epoch, batch.position}) != left_out_.end();
}

}  // namespace reigen::train
