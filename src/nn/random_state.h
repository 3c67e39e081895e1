// The states of default generators: 5 KB of the CPU's, 16 bytes of each CUDA device's. Neither waits for a device.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <utility>
#include <vector>

namespace reigen::nn {

class RandomState {
 public:
  // As they are now: of the CPU and of the CUDA devices on which these tensors lie. Some may be undefined.
  explicit RandomState(const std::vector<at::Tensor>& tensors);

  // Of the same generators, as they are now.
  RandomState now() const;
  void apply() const;

 private:
  RandomState() = default;
  void add(at::Device device);

  std::vector<std::pair<at::Device, at::Tensor>> states_;
};

}  // namespace reigen::nn
