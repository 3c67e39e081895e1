// train.verify: checks before training that the task's model trains in parallel as it does alone.
#pragma once

#include <cstdint>
#include <string>

#include "reigen/comm/communicator.h"
#include "reigen/train/config.h"
#include "train/run/run.h"

namespace reigen::train {

// Collective. Each rank trains the model alone for train.verify steps with the first `samples` samples. Then all ranks
// train it in parallel with the same samples. The model is unchanged afterwards. Returns a line for the user. If the
// results differ, every rank throws the same error (exit code 78, is_common() is true). The error names step and
// parameter.
std::string verify_before_training(Run& run, std::int64_t samples);

}  // namespace reigen::train
