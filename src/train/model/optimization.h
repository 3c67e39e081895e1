// What a run does between backward and the next forward, made from its configuration: norm and check of the gradients,
// clipping, learning rate, optimizer, average of the weights.
//
// Every rank has the same gradients, or its share of them, and does the same. Thread rule: one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "reigen/optim/ema.h"
#include "reigen/optim/grad_scaler.h"
#include "reigen/optim/optimizer.h"
#include "reigen/optim/schedule.h"
#include "reigen/tensor/parameter_range.h"
#include "reigen/tensor/tensor_files.h"
#include "reigen/train/config.h"

namespace reigen::train {

struct RunLength {
  std::int64_t total_steps = 0;
  std::int64_t global_batch = 0;
  int world_size = 1;
};

// What the optimizer and the average of the weights keep of every parameter. Throws InvalidArgument for an optimizer
// that there is not.
std::vector<layout::StateSpec> states_of(const OptimConfig& config);

class Optimization {
 public:
  // Throws InvalidArgument (78) for options out of range and for patterns that match no parameter.
  Optimization(const Config& config, const std::vector<ParameterRange>& parameters, const RunLength& length);

  // Looks at the gradients before a step, where it must be known then: to clip them, or because who has made them can
  // only be told from weights that did not step (ranks have nothing left but their mean). Else step() looks, on its
  // way.
  struct Gradients {
    std::optional<double> norm = {};  // before clipping
    bool finite = true;
    double factor = 1;
  };
  Gradients look() const;

  // The loss that backward is to run from: with train.precision fp16 it carries the loss scale.
  at::Tensor scaled(const at::Tensor& loss) const;

  // Steps with them, drops them, and brings the average of the weights up to date; with a loss scale not when they
  // overflowed. The norm of the gradients, where it is known. Not finite: the weights are gone, the gradients are still
  // there. agree: ranks that skip a step together though their gradients differ, or null.
  Gradients step(std::int64_t done, const Gradients& gradients, Communicator* agree = nullptr);
  // Instead of a step: drops the gradients.
  void leave_out() { optimizer_->zero_grad(); }

  double lr() const { return optimizer_->lr(); }
  std::int64_t steps() const { return optimizer_->steps(); }

  // For the checkpoint: the optimizer's state and, with ema_decay, "<parameter>.ema" and "ema.updates"; with a
  // loss scale "scaler.scale" and what belongs to it.
  std::vector<tensor::NamedTensor> state() const;
  // A state without an average is taken as it is: the average starts from the weights. One that is not wanted is
  // dropped. Throws InvalidArgument as Optimizer::load_state.
  void load_state(const std::vector<tensor::NamedTensor>& state, std::int64_t steps);

  bool has_average() const { return average_.has_value(); }
  // The model holds the average while the result lives; nothing happens without ema_decay.
  std::optional<optim::ExponentialMovingAverage::Swapped> swap_in_average();

 private:
  std::vector<ParameterRange> parameters_;
  double base_lr_ = 0;
  double clip_norm_ = 0;
  double clip_value_ = 0;
  bool checks_in_step_ = false;
  optim::ScheduleOptions schedule_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::optional<optim::ExponentialMovingAverage> average_;
  std::optional<optim::GradScaler> scaler_;
};

}  // namespace reigen::train
