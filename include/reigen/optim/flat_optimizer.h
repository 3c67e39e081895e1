// FlatOptimizer is the class template of AdamW, SGD and the other optimizers. The type of the options selects the
// update rule.
//
//   using AdamW = FlatOptimizer<AdamWOptions>;
//
// Thread rule: one thread at a time may use an optimizer.
#pragma once

#include <concepts>
#include <memory>
#include <string>
#include <vector>

#include "reigen/layout/model.h"
#include "reigen/optim/optimizer.h"
#include "reigen/optim/parameter_group.h"
#include "reigen/tensor/parameter_range.h"

namespace reigen::optim {

template <class Options>
class FlatOptimizer final : public Optimizer {
 public:
  // Throws InvalidArgument for options out of range, for an empty `parameters`, and for parameters that are not fp32,
  // fp64, bf16 or fp16. config/optimizers.h says how much memory the states of each optimizer take.
  explicit FlatOptimizer(std::vector<ParameterRange> parameters, const Options& options = {});
  // Makes a compile error if the caller passes a module's own parameters(). The message says what to pass instead.
  template <std::same_as<std::vector<at::Tensor>> Tensors>
  explicit FlatOptimizer(const Tensors&, const Options& = {}) : FlatOptimizer(std::vector<ParameterRange>()) {
    static_assert(sizeof(Tensors) == 0,
                  "an optimizer of reigen takes the parameters of the wrapped model: auto parallel = "
                  "reigen::data_parallel(model, world); then pass parallel.parameters()");
  }
  // The names and types of the states that the optimizer keeps for every parameter.
  static std::vector<layout::StateSpec> states(const Options& options);
  FlatOptimizer(FlatOptimizer&&) noexcept;
  FlatOptimizer& operator=(FlatOptimizer&&) noexcept;
  ~FlatOptimizer() override;

  std::string name() const override;
  using Optimizer::step;
  void step(const StepOptions& how) override;
  void zero_grad() override;
  double lr() const override;
  void set_lr(double lr) override;
  bool was_finite() const override;
  std::int64_t steps() const override;
  std::vector<NamedTensor> state() const override;
  void load_state(const std::vector<NamedTensor>& state, std::int64_t steps) override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace reigen::optim
