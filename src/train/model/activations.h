// Applies train.activation_checkpoint to a model.
#pragma once

#include <memory>

#include "reigen/nn/activation_checkpoint.h"
#include "reigen/train/config.h"
#include "reigen/train/task.h"

namespace reigen::train {

// While the result lives, every N-th unit of the task's model computes its activations again in backward, where N is
// train.activation_checkpoint. Returns null if N is 0. Throws an error that every rank has (exit code 78, is_common()
// is true) if the model is not made of units, or if train.activation_keep is set without train.activation_checkpoint.
std::unique_ptr<nn::ActivationCheckpoint> checkpoint_activations(Task& task, const std::string& name,
                                                                 const TrainConfig& config);

}  // namespace reigen::train
