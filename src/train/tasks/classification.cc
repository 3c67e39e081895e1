#include "train/tasks/classification.h"

#include <ATen/ATen.h>

#include "reigen/data/text.h"

namespace reigen::train {

at::Tensor loss_of_classes(const at::Tensor& scores, const at::Tensor& target, double label_smoothing) {
  return at::cross_entropy_loss(scores, target, {}, at::Reduction::Mean, data::kIgnoredToken, label_smoothing);
}

ClassFigures figures_of_classes(const at::Tensor& scores, const at::Tensor& target) {
  // The loss is computed in fp64, so that the sum hardly depends on how the samples are divided into batches and ranks.
  const at::Tensor loss =
      at::cross_entropy_loss(scores.to(at::kDouble), target, {}, at::Reduction::Sum, data::kIgnoredToken);
  const at::Tensor count = target.ne(data::kIgnoredToken).sum();
  return {.accuracy = {.sum = scores.argmax(1).eq(target).sum(), .count = count},
          .loss = {.sum = loss, .count = count}};
}

}  // namespace reigen::train
