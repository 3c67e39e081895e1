// What every optimizer of ours offers, so that a training loop or a checkpoint can hold any of them.
//
// An optimizer steps over flat ranges of parameters in one fused pass. A parameter without a gradient is left as it is
// and its step count does not advance, as in torch::optim; with gradients of all parameters the results are
// torch::optim's. Thread rule: one thread at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

namespace reigen::optim {

struct NamedTensor {
  std::string name;
  at::Tensor tensor;
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;

  virtual std::string name() const = 0;  // "adamw", "sgd"

  // parameter = update(parameter, gradient, state) for every parameter that has a gradient. Never blocks, no
  // communication.
  virtual void step() = 0;

  // Drops all gradients (`.grad` becomes undefined), so that the next backward's need not be added to anything.
  virtual void zero_grad() = 0;

  virtual double lr() const = 0;
  // Throws InvalidArgument if it is negative or not finite.
  virtual void set_lr(double lr) = 0;

  // How often step() was called.
  virtual std::int64_t steps() const = 0;

  // Everything but the options, for a checkpoint: "<parameter>.<what>", each with the parameter's shape
  // ("<parameter>.step": one fp32 number). The tensors are the state itself, not copies; read them between steps.
  virtual std::vector<NamedTensor> state() const = 0;

  // Sets the state to what state() and steps() gave before, in any order. Throws InvalidArgument, naming the entry,
  // when one is missing, unknown, or of another shape or type; nothing is changed then.
  virtual void load_state(const std::vector<NamedTensor>& state, std::int64_t steps) = 0;
};

}  // namespace reigen::optim
