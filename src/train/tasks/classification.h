// The score of tasks that sort samples into classes.
// Thread rule: pure functions.
#pragma once

#include <ATen/core/Tensor.h>

#include "reigen/train/task.h"

namespace reigen::train {

// `scores` has the shape [N, classes] and is not normalised. `target` has the shape [N]. Targets that equal
// data::kIgnoredToken do not count.
Scores score_classes(const at::Tensor& scores, const at::Tensor& target);

}  // namespace reigen::train
