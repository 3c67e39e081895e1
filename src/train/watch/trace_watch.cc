#include "train/watch/trace_watch.h"

#include <fmt/format.h>

namespace reigen::train {

namespace {

const char* name_of(Phase phase) {
  switch (phase) {
    case Phase::kData: return "data";
    case Phase::kForward: return "forward";
    case Phase::kBackward: return "backward";
    case Phase::kGradients: return "gradient norm";
    case Phase::kLoss: return "loss of all";
    case Phase::kOptimizer: return "optimizer";
  }
  return "";
}

}  // namespace

void TraceWatch::open() {
  if (!run_.config.run.trace.empty()) trace_.emplace(run_.world, parse_step_range(run_.config.run.trace));
}

void TraceWatch::note_range() {
  if (!trace_ || (trace_->steps().first <= run_.total && trace_->steps().last > run_.done)) return;
  run_.say(fmt::format("note: run.trace {} has none of the steps {} to {} of this run", run_.config.run.trace,
                       run_.done + 1, run_.total));
}

void TraceWatch::begin_step(std::int64_t step, const data::Batch& /*batch*/, double waited) {
  if (!trace_) return;
  begin_spans_before(step);
  trace_->begin(step, waited);
}

void TraceWatch::end_phase(Phase phase) {
  if (trace_) trace_->lap(name_of(phase));
}

// Called before the steps, so that the wait for the GPU belongs to none of them.
void TraceWatch::begin_spans_before(std::int64_t step) {
  if (has_spans_ || step < trace_->steps().first || step > trace_->steps().last) return;
  has_spans_ = true;
  device_.begin_spans();
}

void TraceWatch::end_step(std::int64_t step) {
  if (!trace_) return;
  if (step + 1 == trace_->steps().first) {
    begin_spans_before(step + 1);
    between_steps_.lap();
  }
  trace_->end(model_.parallel(), model_.pipeline());
  if (trace_->is_due(step) && !failed_) failed_ = !write();
}

void TraceWatch::end_run() {
  if (trace_ && trace_->has_steps()) write();
}

bool TraceWatch::write() {
  for (const DeviceTimes::Span& span : device_.end_spans()) {
    if (span.phase != Phase::kData) trace_->add_of_gpu(name_of(span.phase), span.begin, span.end);
  }
  return outcome_.attempt("trace.json", [&] {
    run_.say(trace_->write(files_.directory() / "trace.json"));
    between_steps_.lap();
  });
}

}  // namespace reigen::train
