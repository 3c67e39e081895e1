// What every optimizer of ours offers, so that a training loop or a checkpoint can hold any of them.
//
// An optimizer steps over flat ranges of parameters in one fused pass (LARS and LAMB: two), in the values' precision
// for fp64 and in fp32 for the others. bf16 and fp16 values have fp32 masters (.master_weights): the step is made on
// them, states are fp32 too, and the values become their rounding; a value that somebody else has changed since becomes
// its master. Without them a step of less than half a place of 16 bits is lost, and states are of 16 bits. A parameter
// without a gradient is left as it is and its step count does not advance, as in torch::optim; with gradients of all
// parameters the results are torch::optim's. The bits depend neither on the number of threads nor on the processor's
// instruction set. Thread rule: one thread at a time.
//
// Ranges that ranks divide (data_parallel's Shard) are stepped by all ranks together, each its share, with the same
// bits: construction and step() are collective then, and throw as a barrier does. The states are one memory of all
// ranks where the values are; else each rank has those of its share.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "reigen/tensor/tensor_files.h"

namespace reigen::optim {

using tensor::NamedTensor;

// What a step makes of the gradients while it reads them, so that neither clipping nor unscaling costs a pass:
// g = clamp(gradient_factor · gradient, -gradient_limit, gradient_limit). The gradients themselves stay as they are.
struct StepOptions {
  double gradient_factor = 1;                                       // finite; see clip.h
  double gradient_limit = std::numeric_limits<double>::infinity();  // clip by value; above 0
  // Looks on the way whether g is a number everywhere, for was_finite(): nearly free, but what is none is in the
  // parameters when it is known. Where ranks average in the step each keeps its own gradients.
  bool check_finite = false;
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;

  virtual std::string name() const = 0;  // "adamw", "sgd"

  // parameter = update(parameter, g, state) for every parameter that has a gradient. Waits for other ranks only where
  // they share the parameters.
  // Throws InvalidArgument, with nothing changed, when an option is out of range, and when a parameter has left the
  // memory that this optimizer steps in.
  virtual void step(const StepOptions& options) = 0;
  void step() { step(StepOptions()); }

  // Drops all gradients (`.grad` becomes undefined), so that the next backward's need not be added to anything.
  virtual void zero_grad() = 0;

  // Of parameters whose group has no factor of its own.
  virtual double lr() const = 0;
  // Throws InvalidArgument if it is negative or not finite.
  virtual void set_lr(double lr) = 0;

  // False when the last step had .check_finite and read a NaN or an infinity; on all ranks that share the parameters.
  virtual bool was_finite() const = 0;

  // How often step() was called.
  virtual std::int64_t steps() const = 0;

  // Everything but the options, for a checkpoint: "<parameter>.<what>", each with the parameter's shape
  // ("<parameter>.step": one fp32 number; "<parameter>.master"). The tensors are the state itself, not copies; read
  // them between steps.
  virtual std::vector<NamedTensor> state() const = 0;

  // Sets the state to what state() and steps() gave before, in any order. Throws InvalidArgument, naming the entry,
  // when one is missing, unknown, or of another shape or type; nothing is changed then.
  virtual void load_state(const std::vector<NamedTensor>& state, std::int64_t steps) = 0;
};

}  // namespace reigen::optim
