#include "reigen/train/resnet18_task.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "reigen/data/pictures.h"
#include "train/tasks/classification.h"
#include "train/tasks/make_model.h"

namespace reigen::train {

ResNet18Task::ResNet18Task(const ResNet18TaskOptions& options) : options_(options) {}

models::ResNet18& ResNet18Task::module() {
  if (!model_) {
    training();
    model_ = make_model<models::ResNet18>(options_.without_memory, options_.type,
                                          models::ResNet18Options{.classes = classes_,
                                                                  .width = options_.width,
                                                                  .norm_batch = options_.norm_batch,
                                                                  .kernels = options_.kernels});
  }
  return *model_;
}

data::DatasetPtr ResNet18Task::training() {
  if (training_) return training_;
  if (options_.path.empty()) {
    classes_ = data::kDrawnClasses;
    training_ = data::drawn_pictures({.augment = true, .type = options_.type});
  } else if (PictureData::has_containers(options_.path)) {
    stored_ = std::make_unique<PictureData>(
        PictureDataOptions{.path = options_.path, .size = data::kPictureSide, .style = PictureStyle::kCifar10});
    classes_ = stored_->classes();
    training_ = stored_->training();
  } else {
    data::ImageFolder folder = data::image_folder(options_.path, {.augment = true, .type = options_.type});
    classes_ = static_cast<std::int64_t>(folder.classes.size());
    training_ = folder.data;
    taken_ = folder.taken.text();
  }
  return training_;
}

data::DatasetPtr ResNet18Task::validation() {
  if (validation_) return validation_;
  training();
  if (stored_) return validation_ = stored_->validation();
  const auto split = data::Split::kTest;
  validation_ = options_.path.empty() ? data::drawn_pictures({.split = split, .type = options_.type})
                                      : data::image_folder(options_.path, {.split = split, .type = options_.type}).data;
  return validation_;
}

std::string ResNet18Task::kind_of_samples() const {
  if (options_.path.empty()) return "drawn pictures";
  if (stored_) return stored_->kind_of_samples();
  return fmt::format("pictures of {} {} from {} ({})", classes_, classes_ == 1 ? "class" : "classes", options_.path,
                     taken_);
}

at::Tensor ResNet18Task::training_step(const data::Samples& batch) {
  return loss_of_classes(module().forward(batch.input.to(options_.type)), batch.target, options_.label_smoothing);
}

void ResNet18Task::validation_step(const data::Samples& batch) {
  const ClassFigures figures = figures_of_classes(module().forward(batch.input.to(options_.type)), batch.target);
  log("test_accuracy", figures.accuracy);
  log("test_loss", figures.loss);
}

std::vector<data::NamedTensor> ResNet18Task::predict_step(const data::Samples& batch) {
  return {{"scores", module().forward(batch.input.to(options_.type))}};
}

}  // namespace reigen::train
