// The optimizer that a task chooses itself (Task::configure_optimizers), and the rates of TrainerOptions::rate.
// Thread rule: used only by its rank's thread.
#pragma once

#include "train/run/run.h"

namespace reigen::train {

// What these choose takes the place of the options: run.config.optim, run.own_groups and run.own_rate. Does nothing
// if it chooses none. Throws InvalidArgument if both the task and the options have groups of parameters.
void take_own_optimizer(Run& run);

}  // namespace reigen::train
