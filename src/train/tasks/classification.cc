#include "train/tasks/classification.h"

#include <ATen/ATen.h>

#include "reigen/data/text.h"

namespace reigen::train {

Scores score_classes(const at::Tensor& scores, const at::Tensor& target) {
  // The loss is computed in fp64, so that the sum hardly depends on how the samples are divided into batches and ranks.
  const at::Tensor loss =
      at::cross_entropy_loss(scores.to(at::kDouble), target, {}, at::Reduction::Sum, data::kIgnoredToken);
  return {.loss_sum = loss.item<double>(),
          .correct = scores.argmax(1).eq(target).sum().item<std::int64_t>(),
          .count = target.ne(data::kIgnoredToken).sum().item<std::int64_t>()};
}

}  // namespace reigen::train
