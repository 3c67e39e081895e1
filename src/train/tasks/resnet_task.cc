#include "reigen/train/resnet_task.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "reigen/train/mixed_loss.h"
#include "train/tasks/classification.h"
#include "train/tasks/make_model.h"

namespace reigen::train {

ResNetTask::ResNetTask(const ResNetTaskOptions& options)
    : options_(options), model_(make_model<models::ResNet>(options.without_memory, options.type, options.model)) {
  REIGEN_CHECK(options.label_smoothing >= 0 && options.label_smoothing < 1,
               "a ResNetTask with label_smoothing {}: must be at least 0 and below 1", options.label_smoothing);
}

at::Tensor ResNetTask::training_step(const data::Samples& batch) {
  return mixed_cross_entropy(model_->forward(batch.input.to(options_.type)), batch, options_.label_smoothing);
}

void ResNetTask::validation_step(const data::Samples& batch) {
  const at::Tensor scores = model_->forward(batch.input.to(options_.type));
  const ClassFigures figures = figures_of_classes(scores, batch.target);
  log("test_accuracy", figures.accuracy);
  log("test_accuracy_top5", accuracy(scores, batch.target, std::min<std::int64_t>(5, scores.size(1))));
  log("test_loss", figures.loss);
}

std::vector<data::NamedTensor> ResNetTask::predict_step(const data::Samples& batch) {
  return {{"scores", model_->forward(batch.input.to(options_.type))}};
}

std::string ResNetTask::describe(const Figures& figures) const {
  const auto top1 = figures.find("test_accuracy");
  const auto top5 = figures.find("test_accuracy_top5");
  const auto loss = figures.find("test_loss");
  if (!top1 || !top5 || !loss || figures.values.size() != 3) return Task::describe(figures);
  return fmt::format("top-1 {:.2f} %, top-5 {:.2f} %, loss {:.4f} ({} samples)", *top1 * 100, *top5 * 100, *loss,
                     figures.terms);
}

}  // namespace reigen::train
