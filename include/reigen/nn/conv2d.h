// Convolutions of maps that are small beside their weights.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace reigen::nn {

struct Conv2dShape {
  std::int64_t stride = 1;   // at least 1
  std::int64_t padding = 0;  // on every side, at least 0
};

// y[b,o,i,j] = bias[o] + sum over c,u,v of weight[o,c,u,v] · input[b,c, i·stride + u - padding, j·stride + v -
// padding], as at::conv2d, differentiable as often. input: [B,C,H,W], weight: [O,C,U,V], bias: [O] or undefined.
// Result: [B,O,I,J], in channels-last memory where a matrix product made it.
//
// A convolution brings its weights into an order of its own, and their gradient back, in each call: on maps of a few
// pixels that costs more than the sums. Here maps of at most four pixels a channel come from one matrix product with
// the weights as they lie, without those of them that only ever meet padding; larger ones, and other devices than the
// CPU, take at::conv2d. Values differ from its in rounding. The memory of a product: 4·U·V·C·B numbers.
// Throws InvalidArgument for shapes that do not fit.
at::Tensor conv2d(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                  const Conv2dShape& shape = {});

}  // namespace reigen::nn
