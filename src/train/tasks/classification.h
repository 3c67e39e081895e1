// The figures of tasks that sort samples into classes.
// Thread rule: pure functions.
#pragma once

#include <ATen/core/Tensor.h>

#include "reigen/train/metrics.h"

namespace reigen::train {

// The mean cross entropy of the batch, for training. `label_smoothing` is the share of each target that is spread over
// all classes: loss = (1 - s) · mean(-log p[target]) + s · mean over batch and classes(-log p). Szegedy et al., 2016,
// https://arxiv.org/abs/1512.00567, section 7.
at::Tensor loss_of_classes(const at::Tensor& scores, const at::Tensor& target, double label_smoothing);

// What validation tells. Its loss is the plain cross entropy, also if the loss of training is smoothed: so it can be
// compared between runs.
struct ClassFigures {
  BatchMean accuracy = {};
  BatchMean loss = {};  // cross entropy
};

// `scores` has the shape [N, classes] and is not normalised. `target` has the shape [N]. Targets that equal
// data::kIgnoredToken do not count.
ClassFigures figures_of_classes(const at::Tensor& scores, const at::Tensor& target);

}  // namespace reigen::train
