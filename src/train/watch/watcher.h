// What looks at a training loop. A watcher sees each step and never steers: what may skip a step, end a run or go back
// is called by the loop by its name (loop/trainer.cc).
//
// Every rank calls its watchers in the same order after the same phase, so a watcher may be collective.
// Thread rule: the thread of its rank.
#pragma once

#include <cstdint>

namespace reigen::train {

// The phases of a step, in order. Forward and backward come once for each micro-batch, and kLoss only where the ranks
// add up their losses in each step.
enum class Phase { kData, kForward, kBackward, kGradients, kLoss, kOptimizer };

class Watcher {
 public:
  virtual ~Watcher() = default;

  // Before the step with this number, counted from 1. waited: seconds for its batch.
  virtual void begin_step(std::int64_t /*step*/, double /*waited*/) {}
  virtual void end_phase(Phase /*phase*/) {}
  // After the step was counted and its loss noted.
  virtual void end_step(std::int64_t /*step*/) {}
  // The step ended by an exception, in any phase.
  virtual void abandon_step() {}
};

}  // namespace reigen::train
