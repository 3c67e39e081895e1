// Stochastic gradient descent with momentum, as torch::optim::SGD defines it.
//
//   auto optimizer = reigen::optim::SGD(parallel.parameters(), {.lr = 0.1, .momentum = 0.9});
//
//   g += weight_decay·p
//   b = momentum·b + (1 - dampening)·g      (first step of a parameter: b = g)
//   p -= lr·b                               (nesterov: p -= lr·(g + momentum·b))
// Thread rule: one thread at a time.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "reigen/optim/optimizer.h"
#include "reigen/tensor/parameter_range.h"

namespace reigen::optim {

struct SGDOptions {
  double lr = 1e-3;         // at least 0
  double momentum = 0;      // at least 0; 0 keeps no state tensor
  double dampening = 0;     // finite
  double weight_decay = 0;  // at least 0
  bool nesterov = false;    // needs momentum > 0 and no dampening
};

// State: "<parameter>.momentum" (with momentum) and "<parameter>.step". Memory: the values once, or nothing.
class SGD final : public Optimizer {
 public:
  // Throws InvalidArgument for options out of range and for no parameters.
  explicit SGD(std::vector<ParameterRange> parameters, const SGDOptions& options = {});
  SGD(SGD&&) noexcept;
  SGD& operator=(SGD&&) noexcept;
  ~SGD() override;

  std::string name() const override;
  void step() override;
  void zero_grad() override;
  double lr() const override;
  void set_lr(double lr) override;
  std::int64_t steps() const override;
  std::vector<NamedTensor> state() const override;
  void load_state(const std::vector<NamedTensor>& state, std::int64_t steps) override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace reigen::optim
