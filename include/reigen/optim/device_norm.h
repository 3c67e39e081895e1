// The norm of gradients on a GPU. The GPU clips gradients and skips steps by this norm, and the host does not wait for
// it.
//
//   reigen::optim::DeviceNorm norm(gpu, {.max_norm = 1.0});
//   loss.backward();
//   norm.compute(parallel.parameters());
//   optimizer.step({.norm = &norm});        // clipped; changes nothing if the norm is not finite
//   norm.values()                           // a tensor on the GPU; copy it when you need it
//
// gradient_norm() and clip_factor() (clip.h) compute the same norm and factor, but with them the host waits for the
// GPU. The GPU adds the squares in another order than the host does. So the two norms differ by about 1e-12 of their
// value.
// Thread rule: one thread at a time may use a DeviceNorm.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <vector>

#include "reigen/tensor/parameter_range.h"

namespace reigen::optim {

struct DeviceNormOptions {
  double max_norm = 0;  // limit of the norm; 0 means that gradients are not clipped
};

class DeviceNorm {
 public:
  // Throws InvalidArgument if `gpu` is not a GPU, or for an option out of range.
  explicit DeviceNorm(const at::Device& gpu, const DeviceNormOptions& options = {});

  // Puts the computation of the norm of all gradients on LibTorch's current stream: at most 3 kernels of Reigen. If
  // ranks shard the gradients, it also puts an all_reduce there. compute() is then collective: every rank must call it,
  // and it throws the errors of Communicator::all_reduce(). Throws InvalidArgument if the parameters are not on the
  // GPU.
  void compute(const std::vector<ParameterRange>& ranges);

  // Three fp64 numbers on the GPU: {sum of squares, factor, stopped}. factor = min(1, max_norm / (norm + 1e-6)).
  // `stopped` is 0 at first. When a norm is not finite, `stopped` becomes 1 and remains 1. While it is 1, steps change
  // no values and no states, so the host may read it several steps later. The host counts these steps all the same
  // (Optimizer::steps()).
  const at::Tensor& values() const { return values_; }
  // Sets `stopped` to 0, so that steps change values again. The steps while `stopped` was 1 have changed step counts
  // only. To undo this, load an optimizer state from before these steps (load_state()).
  void reset();

 private:
  DeviceNormOptions options_;
  at::Tensor values_;
};

}  // namespace reigen::optim
