// Pictures in classes for the residual networks of 18 to 152 layers (models/resnet.h), with the figures of ImageNet:
// top-1 and top-5. The data are any batches {input [B, 3, S, S], target [B]}.
//
//   ResNetTask task({.model = {.depth = 50, .classes = 1000}, .label_smoothing = 0.1});
//   Trainer(task, data, world, {.config = config}).fit();
//
// Thread rule: a task belongs to one rank (task.h).
#pragma once

#include <c10/core/ScalarType.h>

#include <memory>
#include <string>
#include <vector>

#include "reigen/models/resnet.h"
#include "reigen/train/task.h"

namespace reigen::train {

struct ResNetTaskOptions {
  models::ResNetOptions model = {};
  c10::ScalarType type = c10::kFloat;  // type of weights and inputs: kFloat or kDouble
  bool without_memory = false;         // if true, data_parallel() allocates the weights' memory (without_memory.h)
  // The share of each target that is spread over all classes, in the loss of training only; at least 0, below 1.
  // Validation tells the plain cross entropy. (torchvision's reference smooths the loss of validation too.)
  double label_smoothing = 0;
};

class ResNetTask final : public Task {
 public:
  explicit ResNetTask(const ResNetTaskOptions& options = {});  // throws as models::ResNet

  models::ResNet& module() override { return *model_; }
  std::vector<nn::Unit> units() override { return model_->units(); }
  void initialize(std::uint64_t seed) override { model_->initialize(seed); }
  nn::Carry first_input(const data::Samples& samples) override { return {samples.input.to(options_.type)}; }
  at::Tensor training_step(const data::Samples& batch) override;
  // Logs test_accuracy (top-1), test_accuracy_top5 (with fewer than five classes: of as many as there are) and
  // test_loss.
  void validation_step(const data::Samples& batch) override;
  std::vector<data::NamedTensor> predict_step(const data::Samples& batch) override;  // "scores" [N, classes]
  std::int64_t validation_batch() const override { return 64; }  // a picture of 224 x 224 takes some 50 MB in a forward
  std::string describe(const Figures& figures) const override;

 private:
  ResNetTaskOptions options_;
  std::unique_ptr<models::ResNet> model_;
};

}  // namespace reigen::train
