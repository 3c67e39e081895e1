// The part of a step between backward and the next forward, made from the configuration: norm and check of the
// gradients, clipping, learning rate, optimizer.
//
// Every rank has the same gradients, or its share of them, and makes the same calls.
// Thread rule: one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "reigen/optim/device_norm.h"
#include "reigen/optim/grad_scaler.h"
#include "reigen/optim/optimizer.h"
#include "reigen/optim/schedule.h"
#include "reigen/tensor/parameter_range.h"
#include "reigen/tensor/tensor_files.h"
#include "reigen/train/config.h"
#include "train/optimizer/learning_rate.h"

namespace reigen::train {

// The states that the optimizer and the average of the weights keep of every parameter. Throws InvalidArgument for an
// unknown optimizer.
std::vector<layout::StateSpec> states_of(const OptimConfig& config);

class Optimization {
 public:
  // `whole`: the parameters of the whole model, if this rank has only some of them (a pipeline); may be empty. Throws
  // InvalidArgument with exit code 78 for options out of range and for patterns that match no parameter.
  // `groups`: those of a task (Task::configure_optimizers), in place of those of the options; may be empty.
  // `parameters` must not be empty. `may_read_late`: see reads_late().
  Optimization(const Config& config, const std::vector<ParameterRange>& parameters, const RunLength& length,
               const std::vector<layout::TensorSpec>& whole = {}, const std::vector<optim::ParameterGroup>& groups = {},
               bool may_read_late = true);

  // look() computes the norm of the gradients and checks whether they are finite, if the result is needed before the
  // step: to clip, to skip the step, or to find the rank whose gradients are not finite. (If ranks keep only the mean
  // of the gradients, they find this rank only by computing the step again with unchanged weights.) Otherwise look()
  // returns default values, and step() checks the gradients while it reads them. If reads_late(), look() computes the
  // norm on the GPU, step() uses it there, and both return default values.
  struct Gradients {
    std::optional<double> norm = {};  // norm before clipping
    bool finite = true;
    double factor = 1;
    bool stepped = true;  // false if step() has dropped them without a step
  };
  Gradients look();
  // Whether the host learns the norm and the check of the gradients only after the step. This is true on a GPU, unless
  // a step may be skipped, the optimizer needs norms on the host, a loss scale is used, or each rank steps with its own
  // gradients.
  bool reads_late() const { return norm_.has_value(); }
  // The values of optim::DeviceNorm after look(). Only for use if reads_late() is true.
  const at::Tensor& late_values() const { return norm_->values(); }
  const optim::DeviceNorm* norm() const { return norm_ ? &*norm_ : nullptr; }  // null: not reads_late()

  // The loss on which backward is to be called: with train.precision fp16 it is multiplied by the loss scale.
  at::Tensor scaled(const at::Tensor& loss) const;

  // By what the gradients are too large: 1 without a loss scale.
  double loss_scale() const { return scaler_ ? scaler_->scale() : 1; }

  // Makes the optimizer's step, and drops the gradients. `done` is the number of the run's steps before this one.
  // `gradients` is the result of look(). With a loss scale, gradients that overflowed are dropped without a step.
  // Returns the norm of the gradients, if it is known. If the returned `finite` is false, the step has made weights
  // that are not finite, and the gradients are not dropped. If ranks step with different gradients and a loss scale,
  // the ranks of the group `agree` skip a step together. `agree` is null if all ranks have the same gradients.
  Gradients step(std::int64_t done, const Gradients& gradients, Communicator* agree = nullptr);
  // Replaces a step: drops the gradients.
  void leave_out() { optimizer_->zero_grad(); }

  // From the next step on, the scheduled learning rate is multiplied by this factor (optim.schedule plateau).
  void set_lr_factor(double factor) { lr_factor_ = factor; }
  const optim::ScheduleOptions& schedule() const { return rate_.schedule(); }

  const std::vector<ParameterRange>& parameters() const { return parameters_; }
  double lr() const { return optimizer_->lr(); }
  std::int64_t steps() const { return optimizer_->steps(); }

  // For checkpoints: the state of the optimizer; with a loss scale also "scaler.scale", "scaler.clean_steps" and
  // "scaler.skipped".
  std::vector<tensor::NamedTensor> state() const;
  // Throws InvalidArgument as Optimizer::load_state.
  void load_state(const std::vector<tensor::NamedTensor>& state, std::int64_t steps);

 private:
  std::vector<ParameterRange> parameters_;
  LearningRate rate_;
  double lr_factor_ = 1;
  double clip_norm_ = 0;
  double clip_value_ = 0;
  bool checks_in_step_ = false;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::optional<optim::GradScaler> scaler_;
  std::optional<optim::DeviceNorm> norm_;
};

}  // namespace reigen::train
