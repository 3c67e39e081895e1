// The cross entropy of pictures whose pairs may be mixed (data::Pipeline::mix_pairs).
// Thread rule: a pure function.
#pragma once

#include <ATen/core/Tensor.h>

#include "reigen/data/dataset.h"

namespace reigen::train {

// `scores` [N, classes], not normalised. Without "mixed_target" in the batch: the mean cross entropy with batch.target.
// With it: the mean over the samples of w · loss(target) + (1 - w) · loss(mixed_target), w = "mixed_weight".
// label_smoothing: the share of each target that is spread over all classes.
at::Tensor mixed_cross_entropy(const at::Tensor& scores, const data::Samples& batch, double label_smoothing = 0);

}  // namespace reigen::train
