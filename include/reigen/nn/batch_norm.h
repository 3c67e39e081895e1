// Batch normalisation, together with the addition and the ReLU that come after it in a residual network. Forward reads
// the input twice and writes the output; backward reads the input and the gradient twice.
//
//   y = reigen::nn::batch_norm(x, norm, {.relu = true});                        // relu(norm(x))
//   y = reigen::nn::batch_norm(x, norm, {.residual = shortcut, .relu = true});  // relu(norm(x) + shortcut)
//
// Types: fp64, fp32, bf16 and fp16. The functions compute in fp32 (fp64 for fp64). The output has the type of the
// input; weight, bias and running statistics may have the same type, or fp32 if the input has 16 bits. Every sum is
// made in a fixed order, so results do not depend on the number of threads. They can be differentiated once: a second
// derivative throws InvalidArgument. Thread rule: any thread; one thread at a time for the same running statistics.
#pragma once

#include <ATen/core/Tensor.h>

namespace reigen::nn {

// The parameters and buffers of a batch normalisation of C channels. Each has the shape [C].
struct BatchNormTensors {
  at::Tensor weight = {};        // may be undefined
  at::Tensor bias = {};          // may be undefined
  at::Tensor running_mean = {};  // may be undefined in training, together with running_var
  at::Tensor running_var = {};
};

struct BatchNormOptions {
  at::Tensor residual = {};  // of the shape and type of the input; undefined: none
  bool relu = false;
  bool training = true;
  double momentum = 0.1;
  double eps = 1e-5;
};

// y = (x - mean)·weight / sqrt(variance + eps) + bias + residual; with relu, 0 where this is negative.
// In training, mean and variance are those of a channel over all samples and pixels, and
//   running_mean = (1 - momentum)·running_mean + momentum·mean; running_var likewise with the unbiased variance.
// Otherwise they are the running statistics, which do not change.
// `x` has the shape [B, C] or [B, C, H, W]. The output of four dimensions lies in memory as "channels last" (LibTorch's
// memory format); an input in another format is copied first. Throws InvalidArgument for shapes, types and devices that
// do not fit, and in training for less than two values per channel.
// Ioffe, Szegedy, Batch normalization, https://arxiv.org/abs/1502.03167
at::Tensor batch_norm(const at::Tensor& x, const BatchNormTensors& tensors, const BatchNormOptions& options = {});

}  // namespace reigen::nn
