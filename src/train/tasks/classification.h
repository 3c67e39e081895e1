// The figures of tasks that sort samples into classes.
// Thread rule: pure functions.
#pragma once

#include <ATen/core/Tensor.h>

#include "reigen/train/metrics.h"

namespace reigen::train {

struct ClassFigures {
  BatchMean accuracy = {};
  BatchMean loss = {};  // cross entropy
};

// `scores` has the shape [N, classes] and is not normalised. `target` has the shape [N]. Targets that equal
// data::kIgnoredToken do not count.
ClassFigures figures_of_classes(const at::Tensor& scores, const at::Tensor& target);

}  // namespace reigen::train
