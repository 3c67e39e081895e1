// A task with several optimizers, each for a part of the model's parameters, that makes their steps itself: for
// generative adversarial networks, or for actor and critic.
//
//   struct Gan : train::ManualTask {
//     torch::nn::Module& module() override { return *model; }
//     std::vector<train::PartOptimizer> optimizers(const train::Config&) override {
//       return {{"discriminator", {"discriminator.*"}, {.rule = optim::AdamOptions{.lr = 2e-4}}},
//               {"generator", {"generator.*"}, {.rule = optim::AdamOptions{.lr = 2e-4}}}};
//     }
//     at::Tensor manual_step(const data::Samples& batch, train::ManualSteps& steps) override {
//       const auto drawn = model->draw(batch.input.size(0));
//       const auto found = loss_of_real(model->judge(batch.input)) + loss_of_fake(model->judge(drawn.detach()));
//       steps.backward(found);
//       steps.step("discriminator");
//       const auto fooled = loss_of_real(model->judge(drawn));
//       steps.backward(fooled);
//       steps.step("generator");
//       return found + fooled;
//     }
//   };
//
// Thread rule: a task belongs to one rank. All ranks make the same calls in the same order.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <string_view>
#include <vector>

#include "reigen/data/dataset.h"
#include "reigen/train/config.h"
#include "reigen/train/task.h"

namespace reigen::train {

// An optimizer of some of the parameters.
struct PartOptimizer {
  std::string name = {};                     // "generator"
  std::vector<std::string> parameters = {};  // patterns of names; `*` matches any text, and `?` any character
  OwnOptimizer optimizer = {};
};

// What manual_step() makes its steps with.
class ManualSteps {
 public:
  virtual ~ManualSteps() = default;

  // grad += mean over the ranks of d loss / d parameter, for every parameter on which the loss depends, whichever
  // optimizer it belongs to. `loss` is a mean over the terms of this rank's batch, and a rank counts by its terms.
  // Costs a backward of data_parallel().
  virtual void backward(const at::Tensor& loss) = 0;

  // Makes the step of an optimizer, after train.clip_norm and train.clip_value of its gradients, and drops these
  // gradients. A parameter without gradient does not change. Throws InvalidArgument for an unknown name. If gradients
  // are not finite, it throws what ends the run, or goes back (train.not_finite); let it pass.
  virtual void step(std::string_view optimizer) = 0;

  // Drops the gradients of the optimizer's parameters, such as those that the loss of another optimizer has left. When
  // manual_step() returns, all gradients are dropped.
  virtual void zero_grad(std::string_view optimizer) = 0;
};

class ManualTask : public Task {
 public:
  // Each trainable parameter belongs to exactly one of the optimizers, of which there may be one. All ranks must return
  // the same. Sharding, checkpoints, bf16 and optim.ema_decay (updated once a batch) work as usual. The run is refused
  // with mesh.*, train.micro_batch, parallel.strategy, fp16, train.graph, train.verify, train.not_finite skip and
  // run.find_lr. Options of optim. count where the task reads them in `config`.
  virtual std::vector<PartOptimizer> optimizers(const Config& config) = 0;

  // Trains on one batch, with as many backwards and steps as it wants. Returns the loss that the run checks, shows and
  // writes: a mean over the terms of the batch, which needs no graph. Each step logs "lr/<optimizer>".
  virtual at::Tensor manual_step(const data::Samples& batch, ManualSteps& steps) = 0;

  // The trainer calls manual_step() instead. The default of validation_step() calls it, and so gets an error.
  at::Tensor training_step(const data::Samples& batch) final;
};

}  // namespace reigen::train
