// Convolution for feature maps that are small compared with the weights.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace reigen::nn {

struct Conv2dShape {
  std::int64_t stride = 1;   // at least 1
  std::int64_t padding = 0;  // on every side, at least 0
};

// y[b,o,i,j] = bias[o] + sum over c,u,v of weight[o,c,u,v] · input[b,c, i·stride + u - padding, j·stride + v -
// padding], as at::conv2d. It can be differentiated as often as at::conv2d. input: [B,C,H,W], weight: [O,C,U,V], bias:
// [O] or undefined. Result: [B,O,I,J], in channels-last memory where a matrix product computed it.
//
// In each call at::conv2d reorders the weights, and its backward reorders the weights' gradient back. On maps of a few
// pixels this costs more than the sums. This function computes maps of at most four pixels per channel by one matrix
// product, which reads the weights without a copy and leaves out weights that are multiplied only with padding. Larger
// maps, and devices other than the CPU, use at::conv2d. Values differ from those of at::conv2d by rounding. A product
// takes memory for 4·U·V·C·B numbers. Throws InvalidArgument for shapes that do not fit.
at::Tensor conv2d(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                  const Conv2dShape& shape = {});

}  // namespace reigen::nn
