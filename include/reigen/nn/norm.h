// LayerNorm and RMSNorm, also together with the addition that comes before them in a residual network. Each direction
// is one pass over memory, on the CPU and on a GPU.
//
//   auto [y, n] = reigen::nn::add_layer_norm(x, attention, norm->weight, norm->bias);   // y = x + attention
//   return y + mlp(n);
//
// Types: fp64, fp32, bf16 and fp16. The functions compute in fp32 (fp64 for fp64). If types differ, the input is
// converted to the wider type of input and weight. Under autocast (autocast.h) an fp32 input gives a normalised output
// in the 16-bit type of autocast; `added` may have this type, and the sum stays in fp32.
// Every sum is made in a fixed order, so results do not depend on the number of threads. They can be differentiated
// once: a second derivative throws InvalidArgument.
// All functions throw InvalidArgument for shapes, types and devices that do not fit.
// Thread rule: any thread.
#pragma once

#include <ATen/core/Tensor.h>

namespace reigen::nn {

// In all functions D is the size of the input's last dimension. `weight` and `bias` have the shape [D] and may be
// undefined.

// output = (x - mean)·weight / sqrt(variance + eps) + bias. Mean and variance are those of the last dimension.
at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double eps = 1e-5);

// output = x·weight / sqrt(mean(x²) + eps)
// Zhang, Sennrich, Root mean square layer normalization, https://arxiv.org/abs/1910.07467
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps = 1e-6);

struct AddedNorm {
  at::Tensor sum;     // x + added
  at::Tensor output;  // the sum, normalised
};

// `added` has the shape of x.
AddedNorm add_layer_norm(const at::Tensor& x, const at::Tensor& added, const at::Tensor& weight, const at::Tensor& bias,
                         double eps = 1e-5);
AddedNorm add_rms_norm(const at::Tensor& x, const at::Tensor& added, const at::Tensor& weight, double eps = 1e-6);

}  // namespace reigen::nn
