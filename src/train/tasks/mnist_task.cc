#include "reigen/train/mnist_task.h"

#include <ATen/ATen.h>

#include "reigen/data/digits.h"
#include "reigen/data/mnist.h"
#include "train/tasks/classification.h"
#include "train/tasks/digits_from.h"
#include "train/tasks/make_model.h"

namespace reigen::train {

MnistTask::MnistTask(const MnistOptions& options)
    : options_(options), model_(make_model<models::MnistCnn>(options.without_memory, options.type)) {}

data::DatasetPtr MnistTask::open(data::Split split) const {
  if (options_.path.empty()) return data::digits({.split = split, .type = options_.type});
  return data::mnist(options_.path, split, options_.type);
}

data::DatasetPtr MnistTask::training() {
  if (training_) return training_;
  training_ = open(data::Split::kTrain);
  if (!options_.path.empty()) kind_ = digits_from(options_.path);
  return training_;
}

data::DatasetPtr MnistTask::validation() {
  if (!validation_) validation_ = open(data::Split::kTest);
  return validation_;
}

std::string MnistTask::kind_of_samples() const {
  if (options_.path.empty()) return "drawn digits";
  return kind_.empty() ? "digits from " + options_.path : kind_;
}

at::Tensor MnistTask::training_step(const data::Samples& batch) {
  return loss_of_classes(model_->forward(batch.input), batch.target, options_.label_smoothing);
}

void MnistTask::validation_step(const data::Samples& batch) {
  const ClassFigures figures = figures_of_classes(model_->forward(batch.input), batch.target);
  log("test_accuracy", figures.accuracy);
  log("test_loss", figures.loss);
}

std::vector<data::NamedTensor> MnistTask::predict_step(const data::Samples& batch) {
  return {{"scores", model_->forward(batch.input)}};
}

}  // namespace reigen::train
