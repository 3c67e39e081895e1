// The sum of this rank's losses over its terms (samples, or tokens of texts) in one step. For a model on a GPU, the GPU
// computes the sum, so that the host need not wait for the losses.
// Thread rule: used only by the thread of its rank.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <utility>

namespace reigen::train {

class OwnLoss {
 public:
  explicit OwnLoss(const at::Device& device);
  // `sum` is one fp64 number on a GPU, which the GPU has computed already.
  explicit OwnLoss(at::Tensor sum) : on_gpu_(std::move(sum)) {}

  // `mean` is the mean loss over `terms` terms. If `terms` is 0, the mean may be NaN and is ignored.
  void add(const at::Tensor& mean, std::int64_t terms);

  // Returns the sum. If the sum is on a GPU, waits for the GPU.
  double value() const;
  // Returns the sum as a tensor of one fp64 number, on the device.
  at::Tensor on_device() const;

 private:
  double sum_ = 0;     // on the CPU
  at::Tensor on_gpu_;  // on a GPU
};

}  // namespace reigen::train
