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
#include "reigen/train/task.h"

namespace reigen::train {

struct ResNet18TaskOptions {
  std::string path = {};               // folder for data::image_folder; if empty, pictures are drawn (data/pictures.h)
  c10::ScalarType type = c10::kFloat;  // type of weights and inputs: kFloat or kDouble
  bool without_memory = false;         // if true, data_parallel() allocates the weights' memory (without_memory.h)
  std::int64_t width = 64;             // `width` and `norm_batch` are as in models::ResNet18Options
  std::int64_t norm_batch = 32;
};

class ResNet18Task final : public Task {
 public:
  explicit ResNet18Task(const ResNet18TaskOptions& options = {});

  const std::string& name() const override;
  models::ResNet18& module() override;  // throws as training_data()
  std::vector<nn::Unit> units() override { return module().units(); }
  void initialize(std::uint64_t seed) override { module().initialize(seed); }
  data::DatasetPtr training_data() override;  // throws as data::image_folder
  data::DatasetPtr test_data() override;
  std::string kind_of_samples() const override;
  at::Tensor loss(const at::Tensor& input, const at::Tensor& target) override;
  Scores score(const at::Tensor& input, const at::Tensor& target) override;

 private:
  ResNet18TaskOptions options_;
  std::int64_t classes_ = 0;  // number of classes; set when the training data are opened
  std::string taken_;         // the files that were taken from the folder, as text; set together with classes_
  std::unique_ptr<models::ResNet18> model_;
  data::DatasetPtr training_;
  data::DatasetPtr test_;
};

}  // namespace reigen::train
