// What a rank could not give of its gradients, parameter by parameter: error feedback.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <vector>

#include "reigen/comm/communicator.h"
#include "reigen/tensor/parameter_range.h"

namespace reigen::parallel {

// fp64 for fp64, else fp32.
at::ScalarType wide_type(at::ScalarType type);

class ErrorMemory {
 public:
  void attach(const std::vector<ParameterRange>& parameters);

  // memory += gradient. The result is the memory itself, flat and wide: what is given of it must be taken out.
  at::Tensor add(const std::string& name, const at::Tensor& gradient);

  const at::Tensor& of(const std::string& name) const { return memory_.at(name); }

  // Memory = its mean over the ranks: what all keep back together stays the same. Waits.
  void settle(const Communicator& world);
  void add_state(std::map<std::string, at::Tensor>& state) const;  // "error.<parameter>"

 private:
  std::map<std::string, at::Tensor> memory_;
};

}  // namespace reigen::parallel
