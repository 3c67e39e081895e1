#include "train/tasks/classification.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "reigen/data/text.h"
#include "reigen/train/mixed_loss.h"

namespace reigen::train {

at::Tensor loss_of_classes(const at::Tensor& scores, const at::Tensor& target, double label_smoothing) {
  return at::cross_entropy_loss(scores, target, {}, at::Reduction::Mean, data::kIgnoredToken, label_smoothing);
}

at::Tensor mixed_cross_entropy(const at::Tensor& scores, const data::Samples& batch, double label_smoothing) {
  const bool is_mixed = std::any_of(batch.more.begin(), batch.more.end(),
                                    [](const data::NamedTensor& one) { return one.first == "mixed_target"; });
  if (!is_mixed) return loss_of_classes(scores, batch.target, label_smoothing);
  const auto of = [&](const at::Tensor& target) {
    return at::cross_entropy_loss(scores, target, {}, at::Reduction::None, data::kIgnoredToken, label_smoothing);
  };
  const at::Tensor weight = batch.at("mixed_weight").to(scores.scalar_type());
  return (weight * of(batch.target) + (1 - weight) * of(batch.at("mixed_target"))).mean();
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
