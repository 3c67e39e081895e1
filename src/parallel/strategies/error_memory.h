// Error feedback: keeps for each parameter the part of its gradients that this rank has not sent yet.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <vector>

#include "reigen/comm/communicator.h"
#include "reigen/tensor/parameter_range.h"

namespace reigen::parallel {

// The type in which error memory is kept: fp64 for fp64 parameters, fp32 for all others.
at::ScalarType wide_type(at::ScalarType type);

class ErrorMemory {
 public:
  void attach(const std::vector<ParameterRange>& parameters);

  // Adds the gradient to the parameter's error memory. Returns the memory itself, as a flat tensor of the wide type.
  // The caller must subtract from it the part that it sends.
  at::Tensor add(const std::string& name, const at::Tensor& gradient);

  const at::Tensor& of(const std::string& name) const { return memory_.at(name); }

  // Sets the memory to its mean over the ranks. The sum of the memories of all ranks does not change, so no gradient is
  // lost. Waits for all ranks.
  void settle(const Communicator& world);
  void add_state(std::map<std::string, at::Tensor>& state) const;  // entries "error.<parameter>"

 private:
  std::map<std::string, at::Tensor> memory_;
};

}  // namespace reigen::parallel
