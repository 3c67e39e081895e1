// The step of a task that makes its steps itself (ManualTask).
// Thread rule: used only by the thread of its rank. All ranks make the same calls in the same order.
#pragma once

#include <functional>
#include <optional>

#include "reigen/data/loader.h"
#include "reigen/train/manual_task.h"
#include "reigen/train/metrics_writer.h"
#include "train/loop/own_loss.h"
#include "train/model/trained_model.h"
#include "train/run/callbacks.h"
#include "train/run/run.h"
#include "train/run/step_times.h"
#include "train/watch/not_finite.h"
#include "train/watch/watcher.h"

namespace reigen::train {

// Ends a phase of the step, and returns the seconds that it took.
using EndPhase = std::function<double(Phase)>;

struct ManualStep {
  OwnLoss loss;                          // the sum of this rank's losses over its terms
  NamedValues rates = {};                // "lr/<optimizer>" of those that made a step
  std::optional<double> grad_norm = {};  // the root of the sum of squares over the steps, if all are known
};
// Lets the task train on the batch, and adds the times of its phases to `time`.
ManualStep make_manual_step(Run& run, TrainedModel& model, NotFinite& not_finite, Callbacks& callbacks,
                            const data::Batch& batch, StepTime& time, const EndPhase& end_phase);

}  // namespace reigen::train
