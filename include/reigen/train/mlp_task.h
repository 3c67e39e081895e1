// Handwritten digits for the perceptron of models/mlp.h. Each image of data/mnist.h or data/digits.h gets a black
// edge of two pixels (32x32) and is passed as one row of 1024 numbers. The loss is cross entropy; the score is the
// accuracy.
// Thread rule: a task belongs to one rank (task.h).
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "reigen/models/mlp.h"
#include "reigen/train/task.h"

namespace reigen::train {

struct MlpTaskOptions {
  std::string path = {};               // folder of MNIST's IDX files; if empty, the digits that data/digits.h draws
  c10::ScalarType type = c10::kFloat;  // type of weights and inputs: kFloat or kDouble
  bool without_memory = false;         // if true, data_parallel() allocates the weights' memory (without_memory.h)
  std::int64_t layers = 8;             // `layers` and `dim` are as in models::MlpOptions
  std::int64_t dim = 1024;
};

class MlpTask final : public Task {
 public:
  explicit MlpTask(const MlpTaskOptions& options = {});

  const std::string& name() const override;
  models::Mlp& module() override { return *model_; }
  std::vector<nn::Unit> units() override { return module().units(); }
  void initialize(std::uint64_t seed) override { module().initialize(seed); }
  nn::Carry first_input(const data::Samples& samples) override;  // the pictures as rows
  data::DatasetPtr training_data() override;                     // throws as data::mnist
  data::DatasetPtr test_data() override;
  std::string kind_of_samples() const override;
  at::Tensor loss(const at::Tensor& input, const at::Tensor& target) override;
  Scores score(const at::Tensor& input, const at::Tensor& target) override;

 private:
  data::DatasetPtr open(data::Split split) const;

  MlpTaskOptions options_;
  std::unique_ptr<models::Mlp> model_;
  data::DatasetPtr training_;
  data::DatasetPtr test_;
  std::string kind_;  // kind of samples; set when the training data are opened
};

}  // namespace reigen::train
