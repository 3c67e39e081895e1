// run.trace: writes the timeline of some steps to trace.json.
// Thread rule: used only by the thread of its rank.
#pragma once

#include <cstdint>
#include <optional>

#include "train/files/outcome.h"
#include "train/files/run_files.h"
#include "train/model/trained_model.h"
#include "train/run/run.h"
#include "train/run/step_times.h"
#include "train/watch/device_times.h"
#include "train/watch/step_trace.h"
#include "train/watch/watcher.h"

namespace reigen::train {

class TraceWatch : public Watcher {
 public:
  // `between_steps` measures the time from step to step. The time for writing the trace belongs to no step, so the
  // TraceWatch restarts `between_steps` after writing.
  TraceWatch(Run& run, const RunFiles& files, const TrainedModel& model, DeviceTimes& device, Outcome& outcome,
             Stopwatch& between_steps)
      : run_(run), files_(files), model_(model), device_(device), outcome_(outcome), between_steps_(between_steps) {}

  // Throws InvalidArgument if run.trace is not a range of steps.
  void open();
  // Tells the user if no step of the range is in this run.
  void note_range();

  void begin_step(std::int64_t step, const data::Batch& batch, double waited) override;
  void end_phase(Phase phase) override;
  void end_step(std::int64_t step) override;  // collective after the last step of the range
  // Collective. Writes the traced steps that are not written yet, also if an earlier attempt failed.
  void end_run();

 private:
  bool write();
  void begin_spans_before(std::int64_t step);

  Run& run_;
  const RunFiles& files_;
  const TrainedModel& model_;
  DeviceTimes& device_;
  Outcome& outcome_;
  Stopwatch& between_steps_;
  std::optional<StepTrace> trace_;
  bool has_spans_ = false;  // begin_spans() was called
  bool failed_ = false;     // the first attempt failed; end_run() tries once more
};

}  // namespace reigen::train
