#include "reigen/train/mlp_task.h"

#include <ATen/ATen.h>

#include "reigen/data/digits.h"
#include "reigen/data/mnist.h"
#include "train/tasks/classification.h"
#include "train/tasks/digits_from.h"
#include "train/tasks/make_model.h"

namespace reigen::train {

namespace {

// Pads images [B, 1, 28, 28] with black to 32x32 and returns them as rows [B, 1024].
at::Tensor rows_of(const at::Tensor& images) {
  constexpr double kBlack = (0 - 0.1307) / 0.3081;  // a black pixel as data/mnist.h normalises it
  return at::constant_pad_nd(images, {2, 2, 2, 2}, kBlack).flatten(1);
}

}  // namespace

MlpTask::MlpTask(const MlpTaskOptions& options)
    : options_(options),
      model_(
          make_model<models::Mlp>(options.without_memory, options.type,
                                  models::MlpOptions{.inputs = 1024, .layers = options.layers, .dim = options.dim})) {}

data::DatasetPtr MlpTask::open(data::Split split) const {
  if (options_.path.empty()) return data::digits({.split = split, .type = options_.type});
  return data::mnist(options_.path, split, options_.type);
}

nn::Carry MlpTask::first_input(const data::Samples& samples) { return {rows_of(samples.input)}; }

data::DatasetPtr MlpTask::training() {
  if (training_) return training_;
  training_ = open(data::Split::kTrain);
  if (!options_.path.empty()) kind_ = digits_from(options_.path);
  return training_;
}

data::DatasetPtr MlpTask::validation() {
  if (!validation_) validation_ = open(data::Split::kTest);
  return validation_;
}

std::string MlpTask::kind_of_samples() const {
  if (options_.path.empty()) return "drawn digits";
  return kind_.empty() ? "digits from " + options_.path : kind_;
}

at::Tensor MlpTask::training_step(const data::Samples& batch) {
  return loss_of_classes(model_->forward(rows_of(batch.input)), batch.target, options_.label_smoothing);
}

void MlpTask::validation_step(const data::Samples& batch) {
  const ClassFigures figures = figures_of_classes(model_->forward(rows_of(batch.input)), batch.target);
  log("test_accuracy", figures.accuracy);
  log("test_loss", figures.loss);
}

std::vector<data::NamedTensor> MlpTask::predict_step(const data::Samples& batch) {
  return {{"scores", model_->forward(rows_of(batch.input))}};
}

}  // namespace reigen::train
