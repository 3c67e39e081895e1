// Convolution for feature maps that are small compared with the weights.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace reigen::nn {

struct Conv2dShape {
  std::int64_t stride = 1;   // at least 1
  std::int64_t padding = 0;  // on every side, at least 0
};

// Returns y[b,o,i,j] = bias[o] + sum over c,u,v of weight[o,c,u,v] · input[b,c, i·stride + u - padding, j·stride + v -
// padding], as at::conv2d does. It can be differentiated as often as at::conv2d. The shapes are [B,C,H,W] for `input`,
// [O,C,U,V] for `weight` and [O] for `bias`, which may be undefined. The result has the shape [B,O,I,J]. It lies in
// channels-last memory if a matrix product computed it.
//
// at::conv2d reorders the weights in each call, and its backward reorders the weights' gradient. For output maps of a
// few pixels this takes more time than the multiplications. If an output map has at most four pixels (I·J <= 4) and the
// tensors are on the CPU, this function computes all maps by one matrix product. The product reads the weights without
// a copy, and leaves out weights that would be multiplied only with padding. In all other cases this function calls
// at::conv2d. The results differ from those of at::conv2d by rounding. A matrix product takes memory for up to
// 4·U·V·C·B numbers. Throws InvalidArgument for shapes that do not fit.
at::Tensor conv2d(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                  const Conv2dShape& shape = {});

}  // namespace reigen::nn
