// The interface of all optimizers of reigen::optim, so that a training loop or a checkpoint can hold any of them.
//
// A step makes one fused pass over the flat ranges of parameters (LARS and LAMB make two). It computes in fp64 for fp64
// parameters and in fp32 for all others. With the option .master_weights (the default), bf16 and fp16 parameters have
// master weights in fp32, and their states are fp32 too. The step changes the master weights, and sets the parameters
// to the rounded master weights. If other code changed a value after the last step, the new value becomes the master
// weight. Without master weights the states have 16 bits, and a change of a weight by less than half a unit in the last
// place is lost. A parameter without a gradient does not change and its step count does not advance, as in
// torch::optim. If all parameters have gradients, the results are those of the same optimizer in torch::optim. The bits
// of the results depend neither on the number of threads nor on the processor's instruction set. Thread rule: one
// thread at a time may use an optimizer.
//
// If a range is divided among ranks (data_parallel's Shard), each rank steps only its share; the results have the same
// bits as without the division. In this case the constructor and step() are collective, and throw the errors of
// Communicator::barrier(). If the parameters are in memory that all ranks share, the states are in such memory too.
// Otherwise each rank has only the states of its share.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "reigen/tensor/tensor_files.h"

namespace reigen::optim {

using tensor::NamedTensor;

class DeviceNorm;

// How a step transforms each gradient when it reads it. So neither clipping nor the division by a loss scale needs an
// extra pass:
//   g = clamp(gradient_factor · gradient, -gradient_limit, gradient_limit)
// The gradients in memory do not change.
struct StepOptions {
  double gradient_factor = 1;                                       // finite; clip_factor() (clip.h) gives it
  double gradient_limit = std::numeric_limits<double>::infinity();  // for clipping by value; above 0
  // If true, the step checks whether g is finite everywhere; was_finite() returns the result. The check costs almost no
  // time. But when it finds a NaN or an infinity, the step has already changed the parameters with it. With kGradients
  // on one machine the step averages the ranks' gradients while it reads them. So `.grad` still holds this rank's own
  // gradients after the step.
  bool check_finite = false;
  // For parameters on a GPU: the step also multiplies the gradients by the factor of this norm. The step changes
  // nothing if this norm or an earlier one was not finite (device_norm.h). LARS and LAMB refuse a DeviceNorm, because
  // they need norms on the host between their two passes. The object must live until step() returns.
  const DeviceNorm* norm = nullptr;
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;

  virtual std::string name() const = 0;  // "adamw", "sgd"

  // parameter = update(parameter, g, state) for every parameter that has a gradient. Waits for other ranks only where
  // ranks shard the parameters. Throws InvalidArgument when an option is out of range or does not fit the optimizer, or
  // when a parameter no longer lies in the memory that this optimizer updates. Nothing changes in these cases.
  virtual void step(const StepOptions& options) = 0;
  void step() { step(StepOptions()); }

  // Drops all gradients: `.grad` becomes undefined, so the next backward has no old gradients to add to.
  virtual void zero_grad() = 0;

  // The learning rate of the parameters whose group has no lr_factor (parameter_group.h).
  virtual double lr() const = 0;
  // Throws InvalidArgument if `lr` is negative or not finite.
  virtual void set_lr(double lr) = 0;

  // False if the last step had .check_finite and read a NaN or an infinity, on this rank or on a rank with which this
  // rank shards the parameters.
  virtual bool was_finite() const = 0;

  // How often step() was called.
  virtual std::int64_t steps() const = 0;

  // The whole state except the options, for a checkpoint. Each entry "<parameter>.<state>" has the parameter's shape;
  // the master weights are "<parameter>.master". The entry "<parameter>.step" is one fp32 number. The tensors are the
  // state itself, not copies, so read them only between steps. If ranks shard the state, each entry says which part
  // this rank has (NamedTensor::part). Read only this part: on a GPU the rest has no memory.
  virtual std::vector<NamedTensor> state() const = 0;

  // Sets the state to the given results of earlier calls of state() and steps(). The entries may have any order. Throws
  // InvalidArgument, and changes nothing, when an entry is missing, unknown, or of another shape or type. The error
  // names the entry.
  virtual void load_state(const std::vector<NamedTensor>& state, std::int64_t steps) = 0;
};

}  // namespace reigen::optim
