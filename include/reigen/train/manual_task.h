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

#include <cstdint>
#include <optional>
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

  // How many steps the run has made, that is, batches. A decision about "every fifth batch" must use it and not a count
  // of the task, because it goes on after a resume.
  virtual std::int64_t done() const = 0;

  // Collective. grad += mean over the ranks of d loss / d parameter, for every parameter on which the loss depends,
  // whichever optimizer it belongs to. `loss` is a mean over the terms of this rank's batch, and a rank counts by its
  // terms. `keep_graph`: another backward goes through a part of the same graph. Costs a backward of data_parallel().
  virtual void backward(const at::Tensor& loss, bool keep_graph = false) = 0;

  // Collective. Makes the step of an optimizer, after train.clip_norm and train.clip_value of its gradients, and drops
  // these gradients. A parameter without gradient does not change. Throws InvalidArgument for an unknown name. If
  // gradients are not finite, it throws what ends the run, or goes back (train.not_finite); let it pass. On a GPU the
  // host waits for the norm.
  virtual void step(std::string_view optimizer) = 0;

  // Collective and blocking. The mean of the loss over the terms of all ranks, for decisions that all ranks must take
  // alike.
  virtual double mean(const at::Tensor& loss) = 0;

  // Drops the gradients of the optimizer's parameters, such as those that the loss of another optimizer has left. When
  // manual_step() returns, all gradients are dropped.
  virtual void zero_grad(std::string_view optimizer) = 0;
};

class ManualTask : public Task {
 public:
  // Each trainable parameter belongs to exactly one of the optimizers, of which there may be one. All ranks must return
  // the same. Sharding, checkpoints, bf16 and optim.ema_decay (updated once a batch) work as usual. optim.schedule and
  // optim.warmup change the rate of each optimizer that has no `rate` of its own, optim.schedule plateau that of all;
  // the other options of optim. count where the task reads them in `config`. The run is refused with mesh.*,
  // train.micro_batch, parallel.strategy, fp16, train.graph, train.verify, train.not_finite skip, run.find_lr,
  // run.summary and TrainerOptions::rate.
  virtual std::vector<PartOptimizer> optimizers(const Config& config) = 0;

  // Trains on one batch, with as many backwards and steps as it wants. Returns the loss that the run shows, writes, and
  // checks after the steps: a mean over the terms of the batch, which needs no graph. The line of the step has
  // "lr/<optimizer>" for each optimizer that made a step; its "lr" is that of the first optimizer.
  virtual at::Tensor manual_step(const data::Samples& batch, ManualSteps& steps) = 0;

  // The trainer calls manual_step() instead. The default of validation_step() calls training_step(), and so gets an
  // error: before the first step, if there are data for validation.
  at::Tensor training_step(const data::Samples& batch) final;
  std::optional<OwnOptimizer> configure_optimizers(const Config&) final { return std::nullopt; }
};

}  // namespace reigen::train
