// A Watcher observes the steps of the training loop and never changes them. Objects that may skip a step, end a run or
// go back to a checkpoint are not Watchers. The loop calls such objects directly (loop/trainer.cc).
//
// Every rank calls its watchers in the same order after the same phase, so a watcher may make collective calls.
// Thread rule: used only by the thread of its rank.
#pragma once

#include <cstdint>

#include "reigen/data/loader.h"

namespace reigen::train {

// The phases of a step, in order. kForward and kBackward occur once for each micro-batch. kLoss occurs only if the
// ranks add up their losses in each step. A ManualTask repeats kForward, kBackward, kGradients and kOptimizer as often
// as it wants, and has no kLoss.
enum class Phase { kData, kForward, kBackward, kGradients, kLoss, kOptimizer };

class Watcher {
 public:
  virtual ~Watcher() = default;

  // Called before the step with this number, counted from 1. `waited` is the number of seconds for which the loop
  // waited for the batch.
  virtual void begin_step(std::int64_t /*step*/, const data::Batch& /*batch*/, double /*waited*/) {}
  virtual void end_phase(Phase /*phase*/) {}
  // Called after the step was counted and its loss noted.
  virtual void end_step(std::int64_t /*step*/) {}
  // Called if an exception ended the step, in any phase.
  virtual void abandon_step() {}
};

}  // namespace reigen::train
