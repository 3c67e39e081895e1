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

const std::string& MnistTask::name() const {
  static const std::string kName = "mnist";
  return kName;
}

data::DatasetPtr MnistTask::open(data::Split split) const {
  if (options_.path.empty()) return data::digits({.split = split, .type = options_.type});
  return data::mnist(options_.path, split, options_.type);
}

data::DatasetPtr MnistTask::training_data() {
  if (training_) return training_;
  training_ = open(data::Split::kTrain);
  if (!options_.path.empty()) kind_ = digits_from(options_.path);
  return training_;
}

data::DatasetPtr MnistTask::test_data() {
  if (!test_) test_ = open(data::Split::kTest);
  return test_;
}

std::string MnistTask::kind_of_samples() const {
  if (options_.path.empty()) return "drawn digits";
  return kind_.empty() ? "digits from " + options_.path : kind_;
}

at::Tensor MnistTask::loss(const at::Tensor& input, const at::Tensor& target) {
  return at::cross_entropy_loss(model_->forward(input), target);
}

Scores MnistTask::score(const at::Tensor& input, const at::Tensor& target) {
  return score_classes(model_->forward(input), target);
}

}  // namespace reigen::train
