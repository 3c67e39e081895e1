// The optimizers of a run, and the average of the weights that optim.ema_decay asks for. A run has one optimizer for
// all parameters, or those of ManualTask::optimizers(), each with parameters of its own.
//
// Thread rule: one thread at a time. Every rank makes the same calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "reigen/optim/ema.h"
#include "reigen/tensor/parameter_range.h"
#include "reigen/tensor/tensor_files.h"
#include "train/optimizer/optimization.h"

namespace reigen::train {

class Optimizers {
 public:
  struct One {
    std::string name;  // PartOptimizer::name; empty if there is one optimizer for all parameters
    Optimization optimization;
  };
  // `parameters`: all parameters, for the average.
  Optimizers(std::vector<std::unique_ptr<One>> all, const OptimConfig& config,
             const std::vector<ParameterRange>& parameters);

  Optimization& first() { return all_.front()->optimization; }
  const Optimization& first() const { return all_.front()->optimization; }
  // Throws InvalidArgument, with the names that there are.
  Optimization& named(std::string_view name);

  // The parameters whose gradients are complete when the phase kGradients ends: those of the optimizer that steps next.
  const std::vector<ParameterRange>& due() const { return due_ != nullptr ? due_->parameters() : first().parameters(); }
  void set_due(const Optimization& next) { due_ = &next; }

  // Drops all gradients.
  void leave_out();
  // From the next step on, the learning rates are multiplied by this factor (optim.schedule plateau).
  void set_lr_factor(double factor);

  // For checkpoints: the states of the optimizers. With ema_decay also "<parameter>.ema" and "ema.updates", and with
  // several optimizers "//optimizer/<name>.steps".
  std::vector<tensor::NamedTensor> state() const;
  // `steps`: those of the first optimizer. A state without an average is accepted: the average then starts from the
  // weights. An average that this run does not use is dropped. Throws InvalidArgument as Optimizer::load_state.
  void load_state(const std::vector<tensor::NamedTensor>& state, std::int64_t steps);

  bool has_average() const { return average_.has_value(); }
  // Call it once after the steps of a batch, unless they were skipped.
  void update_average();
  // While the result lives, the model holds the averaged weights. Does nothing without ema_decay.
  std::optional<optim::ExponentialMovingAverage::Swapped> swap_in_average();

 private:
  std::vector<std::unique_ptr<One>> all_;
  const Optimization* due_ = nullptr;  // of a task with several optimizers
  std::optional<optim::ExponentialMovingAverage> average_;
};

}  // namespace reigen::train
