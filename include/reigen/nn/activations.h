// Activations of the feed-forward layers of transformers. Each direction is one pass over memory.
// Types: fp64, fp32, bf16 and fp16; the functions compute in fp32 (fp64 for fp64). Sums are made in a fixed order. The
// results can be differentiated once: a second derivative throws InvalidArgument.
// All functions throw InvalidArgument for shapes, types and devices that do not fit.
// Thread rule: any thread.
#pragma once

#include <ATen/core/Tensor.h>

namespace reigen::nn {

// gelu(input + bias), with gelu(v) = v·(1 + erf(v / sqrt(2))) / 2. The bias is that of the linear layer before the
// activation, which is then called without its bias:
//   at::Tensor h = reigen::nn::gelu(at::linear(x, up->weight), up->bias);
// `bias` has the shape [D], where D is the size of the input's last dimension, or is undefined. The result has the
// input's type if the bias has the same type, or if the input has 16 bits and the bias has fp32. Otherwise it has the
// type to which LibTorch promotes both: fp32 for fp16 and bf16, else the wider one. Backward also makes the gradient of
// the bias.
at::Tensor gelu(const at::Tensor& input, const at::Tensor& bias = {});

// silu(gate)·up, with silu(v) = v / (1 + exp(-v)). Both have the same shape. They may be parts of one tensor, such as
// the two halves of the last dimension; they are then read without a copy.
// Shazeer, GLU variants improve transformer, https://arxiv.org/abs/2002.05202
at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up);

}  // namespace reigen::nn
