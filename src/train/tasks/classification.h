// The score of tasks that sort samples into classes.
// Thread rule: pure functions.
#pragma once

#include <ATen/core/Tensor.h>

#include "reigen/train/task.h"

namespace reigen::train {

// scores: [N, classes], not normalised; target: [N]. Targets that equal data::kIgnoredToken do not count.
Scores score_classes(const at::Tensor& scores, const at::Tensor& target);

}  // namespace reigen::train
