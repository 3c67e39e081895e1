// What train.activation_checkpoint means.
#pragma once

#include <cstdint>
#include <memory>

#include "reigen/nn/activation_checkpoint.h"
#include "reigen/train/task.h"

namespace reigen::train {

// While it lives every so many-th unit of the task's model computes its activations again; null for 0. Throws
// CommonError (78) for a model that is not made of units.
std::unique_ptr<nn::ActivationCheckpoint> checkpoint_activations(Task& task, std::int64_t every);

}  // namespace reigen::train
