// The norm of gradients on a GPU, and what a step does because of it, without a wait of the host.
//
//   reigen::optim::DeviceNorm norm(gpu, {.max_norm = 1.0});
//   loss.backward();
//   norm.compute(parallel.parameters());
//   optimizer.step({.norm = &norm});        // clipped; changes nothing if a norm was not finite
//   norm.values()                           // the host copies it when it must know
//
// gradient_norm() and clip_factor() (clip.h) give the same numbers, but the host waits for them. The GPU adds the
// squares in another order than the host: the norms differ by about 1e-12 of their value.
// Thread rule: one thread at a time.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <vector>

#include "reigen/tensor/parameter_range.h"

namespace reigen::optim {

struct DeviceNormOptions {
  double max_norm = 0;  // limit of the norm; 0: gradients are not clipped
};

class DeviceNorm {
 public:
  // Throws InvalidArgument if the device is no GPU, or for an option out of range.
  explicit DeviceNorm(const at::Device& gpu, const DeviceNormOptions& options = {});

  // Enqueues the norm of all gradients: 3 kernels of Reigen at most, and one call if ranks divide the gradients. In
  // this case it is collective: every rank calls it, and it throws as a call of Communicator does. Throws
  // InvalidArgument if the parameters are not on the GPU.
  void compute(const std::vector<ParameterRange>& ranges);

  // On the GPU, in fp64: {sum of squares, factor, stopped}. factor = min(1, max_norm / (norm + 1e-6)). stopped is 0
  // until a norm is not finite, and then 1: from that step on steps change no values and states, so the host can find
  // out later. Counts of steps, which the host keeps, go on.
  const at::Tensor& values() const { return values_; }
  // Allows steps again. To go on as if the steps in between had not been, load the states of before (load_state).
  void reset();

 private:
  DeviceNormOptions options_;
  at::Tensor values_;
};

}  // namespace reigen::optim
