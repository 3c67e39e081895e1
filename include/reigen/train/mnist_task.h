// Handwritten digits for the convolutional network of models/mnist_cnn.h. The loss is cross entropy; the score is the
// accuracy.
// Thread rule: a task belongs to one rank (task.h).
#pragma once

#include <c10/core/ScalarType.h>

#include <memory>
#include <string>

#include "reigen/models/mnist_cnn.h"
#include "reigen/train/task.h"

namespace reigen::train {

struct MnistOptions {
  std::string path = {};               // folder of MNIST's IDX files; if empty, the digits that data/digits.h draws
  c10::ScalarType type = c10::kFloat;  // type of weights and inputs: kFloat or kDouble
  bool without_memory = false;         // if true, data_parallel() allocates the weights' memory (without_memory.h)
};

class MnistTask final : public Task {
 public:
  explicit MnistTask(const MnistOptions& options = {});

  const std::string& name() const override;
  models::MnistCnn& module() override { return *model_; }
  data::DatasetPtr training_data() override;  // throws as data::mnist
  data::DatasetPtr test_data() override;
  std::string kind_of_samples() const override;
  at::Tensor loss(const at::Tensor& input, const at::Tensor& target) override;
  Scores score(const at::Tensor& input, const at::Tensor& target) override;

 private:
  data::DatasetPtr open(data::Split split) const;

  MnistOptions options_;
  std::unique_ptr<models::MnistCnn> model_;
  data::DatasetPtr training_;
  data::DatasetPtr test_;
  std::string kind_;  // kind of samples; set when the training data are opened
};

}  // namespace reigen::train
