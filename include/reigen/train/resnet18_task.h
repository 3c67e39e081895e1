// Small colour pictures in classes for ResNet-18 (models/resnet18.h). The loss is cross entropy; the score is the
// accuracy. Training pictures are augmented (data/pictures.h). The number of the model's outputs is the number of the
// data's classes.
// Thread rule: a task belongs to one rank (task.h).
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "reigen/models/resnet18.h"
#include "reigen/train/data_module.h"
#include "reigen/train/picture_data.h"
#include "reigen/train/task.h"

namespace reigen::train {

struct ResNet18TaskOptions {
  // A folder for data::image_folder, or containers for PictureData; if empty, pictures are drawn (data/pictures.h).
  std::string path = {};
  c10::ScalarType type = c10::kFloat;  // type of weights and inputs: kFloat or kDouble
  bool without_memory = false;         // if true, data_parallel() allocates the weights' memory (without_memory.h)
  std::int64_t width = 64;             // `width` and `norm_batch` are as in models::ResNet18Options
  std::int64_t norm_batch = 32;
  nn::Kernels kernels = nn::Kernels::kAuto;  // as in models::ResNet18Options
  double label_smoothing = 0;  // share of each target that is spread over all classes, in the training's loss
};

class ResNet18Task final : public Task, public DataModule {
 public:
  explicit ResNet18Task(const ResNet18TaskOptions& options = {});

  models::ResNet18& module() override;  // throws as training()
  std::vector<nn::Unit> units() override { return module().units(); }
  void initialize(std::uint64_t seed) override { module().initialize(seed); }
  data::DatasetPtr training() override;  // throws as data::image_folder and data::open
  data::DatasetPtr validation() override;
  std::string kind_of_samples() const override;
  nn::Carry first_input(const data::Samples& samples) override { return {samples.input.to(options_.type)}; }
  at::Tensor training_step(const data::Samples& batch) override;
  void validation_step(const data::Samples& batch) override;
  std::vector<data::NamedTensor> predict_step(const data::Samples& batch) override;  // "scores" [N, classes]

 private:
  ResNet18TaskOptions options_;
  std::int64_t classes_ = 0;             // number of classes; set when the training data are opened
  std::unique_ptr<PictureData> stored_;  // set if the data are in containers
  std::string taken_;  // the files that were taken from the folder, as text; set together with classes_
  std::unique_ptr<models::ResNet18> model_;
  data::DatasetPtr training_;
  data::DatasetPtr validation_;
};

}  // namespace reigen::train
