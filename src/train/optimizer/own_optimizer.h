// The optimizers that a task chooses itself (Task::configure_optimizers, ManualTask::optimizers), and the rates of
// TrainerOptions::rate. Thread rule: used only by its rank's thread.
#pragma once

#include <string>
#include <vector>

#include "reigen/layout/model.h"
#include "train/run/run.h"

namespace reigen::train {

// What these choose takes the place of the options: run.config.optim, run.own_groups and run.own_rate. Does nothing
// if it chooses none. Throws InvalidArgument if both the task and the options have groups of parameters.
// Of a ManualTask it sets run.parts, and throws InvalidArgument for options that do not go with such a task.
void take_own_optimizer(Run& run);

// Throws InvalidArgument if a trainable parameter belongs to none of the optimizers or to several, or a pattern matches
// no parameter. Does nothing without parts.
void require_divided(const std::vector<PartOptimizer>& parts, const torch::nn::Module& module);

// "judge: adam, draw: sgd"
std::string to_text(const std::vector<PartOptimizer>& parts);

// The options with an optimizer of the task's in place of theirs. Its groups are left out.
OptimConfig with_rule(OptimConfig options, const OwnOptimizer& own);

// The states that the optimizers of a run keep of their parameters (layout::Choices::states).
std::vector<layout::StateSpec> states_of(const Run& run);

}  // namespace reigen::train
