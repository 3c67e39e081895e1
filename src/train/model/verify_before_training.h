// train.verify: does the task's model train in parallel as it does alone?
#pragma once

#include <cstdint>
#include <string>

#include "reigen/comm/communicator.h"
#include "reigen/train/config.h"
#include "reigen/train/task.h"

namespace reigen::train {

// Makes train.verify steps both ways with the first `samples` samples; the model is as before. A line for people.
// Collective. Throws an error that is_common() (78) on every rank where they differ, naming step and parameter.
std::string verify_before_training(Task& task, const Config& config, std::int64_t samples, const Communicator& world);

}  // namespace reigen::train
