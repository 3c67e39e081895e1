// Checks two things in a wrapped model. First, its parameters are still the same tensors in the same memory. Second,
// weights in memory that several ranks share were changed only by optimizers of reigen::optim.
// Thread rule: one thread at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "reigen/tensor/parameter_range.h"

namespace torch::nn {
class Module;
}  // namespace torch::nn

namespace reigen::parallel {

class ModelGuard {
 public:
  // The module's parameters must be packed already, and their memory must not move later. The module outlives the
  // guard.
  explicit ModelGuard(const torch::nn::Module& module);

  // Throws InvalidArgument if a parameter was added, removed, replaced, moved, converted or unfrozen since
  // construction. The error names the parameter.
  void require_unchanged() const;
  // Throws InvalidArgument if weights in memory that several ranks share were changed by anything but an optimizer of
  // reigen::optim. Another optimizer would step all weights on each rank. Because the ranks share the memory, each
  // weight would make as many steps as there are ranks.
  static void require_own_steps(const std::vector<ParameterRange>& ranges);

  // trainable(): the trainable parameters. all(): all parameters. Both are in the module's order.
  std::vector<at::Tensor> trainable() const;
  std::vector<at::Tensor> all() const;

 private:
  struct Known {
    std::string name;
    at::Tensor parameter;
    const void* storage = nullptr;
    bool trainable = false;
  };
  const torch::nn::Module& module_;
  std::vector<Known> known_;
};

}  // namespace reigen::parallel
