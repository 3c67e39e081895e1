// The interface of all optimizers of reigen::optim, so that a training loop or a checkpoint can hold any of them.
//
// An optimizer steps over flat ranges of parameters in one fused pass (LARS and LAMB: two). It computes in fp64 for
// fp64 values and in fp32 for others. bf16 and fp16 values have fp32 masters (.master_weights): the step changes the
// masters, states are fp32 too, and the values become the rounded masters. If other code changed a value after the last
// step, this value becomes the master. Without masters a step of less than half a unit in the last place of 16 bits is
// lost, and states have 16 bits. A parameter without a gradient does not change and its step count does not advance, as
// in torch::optim. If all parameters have gradients, the results are those of torch::optim. The bits depend neither on
// the number of threads nor on the processor's instruction set. Thread rule: one thread at a time.
//
// If a range is divided among ranks (data_parallel's Shard), each rank steps only its share; the results have the same
// bits. In this case construction and step() are collective, and throw as a barrier does. If the values are in memory
// that all ranks share, the states are too; otherwise each rank has the states of its share.
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

// How a step transforms each gradient while reading it, so that neither clipping nor unscaling costs a pass of its own:
//   g = clamp(gradient_factor · gradient, -gradient_limit, gradient_limit)
// The gradients in memory do not change.
struct StepOptions {
  double gradient_factor = 1;                                       // finite; see clip.h
  double gradient_limit = std::numeric_limits<double>::infinity();  // clip by value; above 0
  // Checks in the step whether g is finite everywhere, for was_finite(). The check is nearly free. But a NaN or an
  // infinity that it finds is already in the parameters. Where ranks average gradients only in the step, `.grad` still
  // holds each rank's own gradients after it.
  bool check_finite = false;
  // On a GPU: the step multiplies gradients by the norm's factor too, and changes nothing if a norm was not finite
  // (device_norm.h). For optimizers that step in one pass, so not for LARS and LAMB. The norm must live until step()
  // returns.
  const DeviceNorm* norm = nullptr;
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;

  virtual std::string name() const = 0;  // "adamw", "sgd"

  // parameter = update(parameter, g, state) for every parameter that has a gradient. Waits for other ranks only where
  // ranks shard the parameters. Throws InvalidArgument, and changes nothing, when an option is out of range or does not
  // fit the optimizer, or when a parameter no longer lies in the memory that this optimizer updates.
  virtual void step(const StepOptions& options) = 0;
  void step() { step(StepOptions()); }

  // Drops all gradients: `.grad` becomes undefined, so the next backward has no old gradients to add to.
  virtual void zero_grad() = 0;

  // The learning rate of parameters whose group has no factor of its own.
  virtual double lr() const = 0;
  // Throws InvalidArgument if it is negative or not finite.
  virtual void set_lr(double lr) = 0;

  // False if the last step had .check_finite and read a NaN or an infinity, on this rank or on a rank with which it
  // shards the parameters.
  virtual bool was_finite() const = 0;

  // How often step() was called.
  virtual std::int64_t steps() const = 0;

  // The whole state except the options, for a checkpoint: "<parameter>.<what>", each with the parameter's shape
  // ("<parameter>.step": one fp32 number; "<parameter>.master"). The tensors are the state itself, not copies, so read
  // them only between steps.
  virtual std::vector<NamedTensor> state() const = 0;

  // Sets the state to the results of earlier calls of state() and steps(); the entries may have any order. Throws
  // InvalidArgument, naming the entry, when an entry is missing, unknown, or of another shape or type; in these cases
  // nothing changes.
  virtual void load_state(const std::vector<NamedTensor>& state, std::int64_t steps) = 0;
};

}  // namespace reigen::optim
