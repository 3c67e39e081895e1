// AdamW: Adam with decoupled weight decay. Loshchilov and Hutter, https://arxiv.org/abs/1711.05101
//
//   auto optimizer = reigen::optim::AdamW(parallel.parameters(), {.lr = 1e-3});
//
//   p -= lr·weight_decay·p
//   m = beta1·m + (1 - beta1)·g        v = beta2·v + (1 - beta2)·g²
//   p -= lr / (1 - beta1^t) · m / (sqrt(v / (1 - beta2^t)) + eps)
// Thread rule: one thread at a time.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "reigen/optim/optimizer.h"
#include "reigen/tensor/parameter_range.h"

namespace reigen::optim {

struct AdamWOptions {
  double lr = 1e-3;                             // at least 0
  std::pair<double, double> betas{0.9, 0.999};  // each in [0, 1)
  double eps = 1e-8;                            // above 0
  double weight_decay = 1e-2;                   // at least 0
  bool amsgrad = false;                         // divide by the largest v so far; one more state tensor
};

// State: "<parameter>.exp_avg", ".exp_avg_sq", (amsgrad: ".max_exp_avg_sq") and ".step". Memory: two (three) times the
// values.
class AdamW final : public Optimizer {
 public:
  // Throws InvalidArgument for options out of range and for no parameters.
  explicit AdamW(std::vector<ParameterRange> parameters, const AdamWOptions& options = {});
  AdamW(AdamW&&) noexcept;
  AdamW& operator=(AdamW&&) noexcept;
  ~AdamW() override;

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
