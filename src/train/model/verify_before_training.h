// train.verify: checks before training that the task's model trains in parallel as it does alone.
#pragma once

#include <cstdint>
#include <string>

#include "reigen/comm/communicator.h"
#include "reigen/train/config.h"
#include "reigen/train/task.h"

namespace reigen::train {

// Collective. Makes train.verify steps alone and in parallel with the first `samples` samples. The model is unchanged
// afterwards. Returns a line for people. If the results differ, throws on every rank an error with exit code 78 that
// is_common() (every rank has it). The error names step and parameter.
std::string verify_before_training(Task& task, const Config& config, std::int64_t samples, const Communicator& world);

}  // namespace reigen::train
