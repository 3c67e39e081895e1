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
#include "reigen/train/data_module.h"
#include "reigen/train/task.h"

namespace reigen::train {

struct MlpTaskOptions {
  std::string path = {};               // folder of MNIST's IDX files; if empty, the digits that data/digits.h draws
  c10::ScalarType type = c10::kFloat;  // type of weights and inputs: kFloat or kDouble
  bool without_memory = false;         // if true, data_parallel() allocates the weights' memory (without_memory.h)
  std::int64_t layers = 8;             // `layers` and `dim` are as in models::MlpOptions
  std::int64_t dim = 1024;
  double label_smoothing = 0;  // share of each target that is spread over all classes, in the training's loss
};

class MlpTask final : public Task, public DataModule {
 public:
  explicit MlpTask(const MlpTaskOptions& options = {});

  models::Mlp& module() override { return *model_; }
  std::vector<nn::Unit> units() override { return module().units(); }
  void initialize(std::uint64_t seed) override { module().initialize(seed); }
  nn::Carry first_input(const data::Samples& samples) override;  // the pictures as rows
  data::DatasetPtr training() override;                          // throws as data::mnist
  data::DatasetPtr validation() override;
  std::string kind_of_samples() const override;
  at::Tensor training_step(const data::Samples& batch) override;
  void validation_step(const data::Samples& batch) override;
  std::vector<data::NamedTensor> predict_step(const data::Samples& batch) override;  // "scores" [N, classes]

 private:
  data::DatasetPtr open(data::Split split) const;

  MlpTaskOptions options_;
  std::unique_ptr<models::Mlp> model_;
  data::DatasetPtr training_;
  data::DatasetPtr validation_;
  std::string kind_;  // kind of samples; set when the training data are opened
};

}  // namespace reigen::train
