// run.trace: writes the timeline of some steps into trace.json.
// Thread rule: the thread of its rank.
#pragma once

#include <cstdint>
#include <optional>

#include "train/files/outcome.h"
#include "train/files/run_files.h"
#include "train/model/trained_model.h"
#include "train/run/run.h"
#include "train/run/step_times.h"
#include "train/watch/step_trace.h"
#include "train/watch/watcher.h"

namespace reigen::train {

class TraceWatch : public Watcher {
 public:
  // The time that writing takes belongs to no step, so it restarts `between_steps`.
  TraceWatch(Run& run, const RunFiles& files, const TrainedModel& model, Outcome& outcome, Stopwatch& between_steps)
      : run_(run), files_(files), model_(model), outcome_(outcome), between_steps_(between_steps) {}

  // Throws InvalidArgument for a run.trace that is no range of steps.
  void open();
  // Tells the user if the run has none of the steps.
  void note_range();

  void begin_step(std::int64_t step, double waited) override;
  void end_phase(Phase phase) override;
  void end_step(std::int64_t step) override;  // collective after the last of the steps
  // Collective. Writes what was traced and is not written yet, also after a failure.
  void end_run();

 private:
  bool write();

  Run& run_;
  const RunFiles& files_;
  const TrainedModel& model_;
  Outcome& outcome_;
  Stopwatch& between_steps_;
  std::optional<StepTrace> trace_;
  bool failed_ = false;  // it is tried once more at the end
};

}  // namespace reigen::train
