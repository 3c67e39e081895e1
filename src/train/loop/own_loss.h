// The sum of this rank's losses over its terms in one step. On a GPU the sum is made there, so that the host need not
// wait for it.
// Thread rule: the thread of its rank.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>

namespace reigen::train {

class OwnLoss {
 public:
  explicit OwnLoss(const at::Device& device);

  // mean: the mean loss over `terms` terms. Of 0 terms the mean is no number, and does not count.
  void add(const at::Tensor& mean, std::int64_t terms);

  // On a GPU: waits for it.
  double value() const;
  // One number in fp64, on the device.
  at::Tensor on_device() const;

 private:
  double sum_ = 0;     // on the CPU
  at::Tensor on_gpu_;  // on a GPU
};

}  // namespace reigen::train
