// Copies numbers that a GPU computes to the host. The host does not wait for the copy, and reads the numbers later.
// Thread rule: one thread at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <span>

#include "device/cuda.h"

namespace reigen::tensor {

class LateValues {
 public:
  // Enqueues a copy of `values` (fp64, on a GPU) to pinned memory of the host. The host does not wait. The copy comes
  // after the work that is on LibTorch's current stream of the GPU. Throws BackendError if CUDA refuses the copy.
  explicit LateValues(const at::Tensor& values);

  // Waits until the copy is done. Throws BackendError if the GPU has failed.
  std::span<const double> wait();

 private:
  at::Tensor here_;
  std::unique_ptr<device::Event> copied_;
};

}  // namespace reigen::tensor
