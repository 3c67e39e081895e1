// The states of default random generators: 5 KB for the CPU, 16 bytes for each CUDA device. No call waits for a
// device.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <utility>
#include <vector>

namespace reigen::nn {

class RandomState {
 public:
  // Saves the present states of the default generators of the CPU and of the CUDA devices on which these tensors lie.
  // Tensors may be undefined.
  explicit RandomState(const std::vector<at::Tensor>& tensors);

  // Returns the present states of the same generators.
  RandomState now() const;
  void apply() const;

 private:
  RandomState() = default;
  void add(at::Device device);

  std::vector<std::pair<at::Device, at::Tensor>> states_;
};

}  // namespace reigen::nn
