// What train.activation_checkpoint means.
#pragma once

#include <memory>

#include "reigen/nn/activation_checkpoint.h"
#include "reigen/train/config.h"
#include "reigen/train/task.h"

namespace reigen::train {

// While it lives every so many-th unit of the task's model computes its activations again; null for 0. Throws
// an error that is_common() (78) for a model that is not made of units, and for train.activation_keep without it.
std::unique_ptr<nn::ActivationCheckpoint> checkpoint_activations(Task& task, const TrainConfig& config);

}  // namespace reigen::train
