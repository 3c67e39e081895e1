// What --run.summary prints: the units of a model, with the shapes of their outputs and what they cost.
// Thread rule: a thread counts for itself.
#pragma once

#include <string>

#include "reigen/train/config.h"
#include "reigen/train/data_module.h"
#include "reigen/train/task.h"

namespace reigen::train {

// Runs training_step() on one sample of the data, in eval mode and without gradients, on the CPU. The result has a line
// of at most 100 columns for each unit (nn/unit.h), and the sums of the whole model. A task without units gets a line
// for each module with parameters, without output. Multiply-adds are those of convolutions, matrix products and
// attention; attention counts each pair of positions, also where a mask leaves it out.
std::string unit_table_of(const std::string& name, Task& task, DataModule& data, const Config& config);

}  // namespace reigen::train
