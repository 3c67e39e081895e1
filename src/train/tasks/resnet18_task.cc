#include "reigen/train/resnet18_task.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "reigen/data/pictures.h"
#include "train/tasks/classification.h"
#include "train/tasks/make_model.h"

namespace reigen::train {

ResNet18Task::ResNet18Task(const ResNet18TaskOptions& options) : options_(options) {}

const std::string& ResNet18Task::name() const {
  static const std::string kName = "resnet18";
  return kName;
}

models::ResNet18& ResNet18Task::module() {
  if (!model_) {
    training_data();
    model_ = make_model<models::ResNet18>(
        options_.without_memory, options_.type,
        models::ResNet18Options{.classes = classes_, .width = options_.width, .norm_batch = options_.norm_batch});
  }
  return *model_;
}

data::DatasetPtr ResNet18Task::training_data() {
  if (training_) return training_;
  if (options_.path.empty()) {
    classes_ = data::kDrawnClasses;
    training_ = data::drawn_pictures({.augment = true, .type = options_.type});
  } else {
    data::ImageFolder folder = data::image_folder(options_.path, {.augment = true, .type = options_.type});
    classes_ = static_cast<std::int64_t>(folder.classes.size());
    training_ = folder.data;
    taken_ = folder.taken.text();
  }
  return training_;
}

data::DatasetPtr ResNet18Task::test_data() {
  if (test_) return test_;
  const auto split = data::Split::kTest;
  test_ = options_.path.empty() ? data::drawn_pictures({.split = split, .type = options_.type})
                                : data::image_folder(options_.path, {.split = split, .type = options_.type}).data;
  return test_;
}

std::string ResNet18Task::kind_of_samples() const {
  if (options_.path.empty()) return "drawn pictures";
  return fmt::format("pictures of {} {} from {} ({})", classes_, classes_ == 1 ? "class" : "classes", options_.path,
                     taken_);
}

at::Tensor ResNet18Task::loss(const at::Tensor& input, const at::Tensor& target) {
  return at::cross_entropy_loss(module().forward(input), target);
}

Scores ResNet18Task::score(const at::Tensor& input, const at::Tensor& target) {
  return score_classes(module().forward(input), target);
}

}  // namespace reigen::train
