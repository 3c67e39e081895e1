// Handwritten digits for the convolutional network of models/mnist_cnn.h. The loss is cross entropy; the score is the
// accuracy.
// Thread rule: a task belongs to one rank (task.h).
#pragma once

#include <c10/core/ScalarType.h>

#include <memory>
#include <string>
#include <vector>

#include "reigen/models/mnist_cnn.h"
#include "reigen/train/data_module.h"
#include "reigen/train/task.h"

namespace reigen::train {

struct MnistOptions {
  std::string path = {};               // folder of MNIST's IDX files; if empty, the digits that data/digits.h draws
  c10::ScalarType type = c10::kFloat;  // type of weights and inputs: kFloat or kDouble
  bool without_memory = false;         // if true, data_parallel() allocates the weights' memory (without_memory.h)
  double label_smoothing = 0;          // share of each target that is spread over all classes, in the training's loss
};

class MnistTask final : public Task, public DataModule {
 public:
  explicit MnistTask(const MnistOptions& options = {});

  models::MnistCnn& module() override { return *model_; }
  data::DatasetPtr training() override;  // throws as data::mnist
  data::DatasetPtr validation() override;
  std::string kind_of_samples() const override;
  at::Tensor training_step(const data::Samples& batch) override;
  void validation_step(const data::Samples& batch) override;
  std::vector<data::NamedTensor> predict_step(const data::Samples& batch) override;  // "scores" [N, classes]

 private:
  data::DatasetPtr open(data::Split split) const;

  MnistOptions options_;
  std::unique_ptr<models::MnistCnn> model_;
  data::DatasetPtr training_;
  data::DatasetPtr validation_;
  std::string kind_;  // kind of samples; set when the training data are opened
};

}  // namespace reigen::train
