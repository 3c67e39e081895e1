// An embedding whose gradient has the same bits in every run, also on a GPU.
// Thread rule: any thread.
#pragma once

#include <ATen/core/Tensor.h>

namespace reigen::nn {

// Row tokens[...] of `weight` for each token: the result has the shape [tokens.sizes()..., D] for a weight of shape
// [V,D] and the type fp64, fp32, bf16 or fp16. `tokens` is int64 or int32, from 0 to V - 1.
//
// Backward sorts the tokens once. The rows of the gradient that belong to one token are then added in the order of the
// rows, in fp32 (fp64 for fp64), and rounded once. LibTorch's backward on a GPU adds them in an order that can differ
// from run to run. The result can be differentiated once: a second derivative throws InvalidArgument. Throws
// InvalidArgument for shapes, types and devices that do not fit.
at::Tensor embedding(const at::Tensor& tokens, const at::Tensor& weight);

}  // namespace reigen::nn
