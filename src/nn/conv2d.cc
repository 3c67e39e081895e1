#include "reigen/nn/conv2d.h"

#include <ATen/ATen.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/check.h"

namespace reigen::nn {

namespace {

constexpr std::int64_t kSmallMap = 4;  // number of pixels of the largest output map that by_product() computes

// One dimension of a convolution, and the range of the weights along it that read pixels of the input map. The other
// weights read only padding.
struct Window {
  std::int64_t outputs;
  std::int64_t first;   // the first weight that reads the map
  std::int64_t count;   // number of weights that read the map
  std::int64_t before;  // number of zeros to add before the map
  std::int64_t behind;  // number of zeros to add after the map; a negative number removes pixels that no weight reads
};

Window window_of(std::int64_t size, std::int64_t weights, const Conv2dShape& shape) {
  const std::int64_t outputs = (size + 2 * shape.padding - weights) / shape.stride + 1;
  const std::int64_t last = (outputs - 1) * shape.stride - shape.padding;  // first position that the last output reads
  const std::int64_t first = std::clamp<std::int64_t>(-last, 0, weights - 1);
  const std::int64_t end = std::clamp<std::int64_t>(size + shape.padding, first + 1, weights);
  return {.outputs = outputs,
          .first = first,
          .count = end - first,
          .before = shape.padding - first,
          .behind = last + end - size};
}

at::Tensor by_product(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias, const Window& rows,
                      const Window& columns, std::int64_t stride) {
  at::Tensor x = input;
  if (rows.before != 0 || rows.behind != 0 || columns.before != 0 || columns.behind != 0) {
    x = at::constant_pad_nd(x, {columns.before, columns.behind, rows.before, rows.behind});
  }
  // The shape is [batch, output rows, output columns, channels, weight rows, weight columns].
  const at::Tensor windows =
      x.unfold(2, rows.count, stride).unfold(3, columns.count, stride).permute({0, 2, 3, 1, 4, 5});
  const at::Tensor w = weight.narrow(2, rows.first, rows.count).narrow(3, columns.first, columns.count);
  const std::int64_t outputs = weight.size(0);
  const std::int64_t products = weight.size(1) * rows.count * columns.count;
  const at::Tensor y = at::linear(windows.reshape({-1, products}), w.reshape({outputs, products}), bias);
  return y.view({input.size(0), rows.outputs, columns.outputs, outputs}).permute({0, 3, 1, 2});
}

}  // namespace

at::Tensor conv2d(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias, const Conv2dShape& shape) {
  REIGEN_CHECK(shape.stride >= 1 && shape.padding >= 0, "a convolution of stride {} and padding {}: at least 1 and 0",
               shape.stride, shape.padding);
  const bool fits = input.dim() == 4 && weight.dim() == 4 && input.size(1) == weight.size(1) && weight.numel() > 0 &&
                    input.size(2) + 2 * shape.padding >= weight.size(2) &&
                    input.size(3) + 2 * shape.padding >= weight.size(3);
  REIGEN_CHECK(fits,
               "a convolution of [{}] with weights [{}] and padding {}: expected [B,C,H,W] and [O,C,U,V] that "
               "is not larger than the padded map",
               fmt::join(input.sizes(), ","), fmt::join(weight.sizes(), ","), shape.padding);
  REIGEN_CHECK(!bias.defined() || (bias.dim() == 1 && bias.size(0) == weight.size(0)),
               "a convolution with a bias of [{}]: expected [{}], as many as the weights have outputs",
               fmt::join(bias.sizes(), ","), weight.size(0));
  const Window rows = window_of(input.size(2), weight.size(2), shape);
  const Window columns = window_of(input.size(3), weight.size(3), shape);
  const bool is_small = rows.outputs * columns.outputs <= kSmallMap && input.numel() > 0;
  if (is_small && input.device().is_cpu()) return by_product(input, weight, bias, rows, columns, shape.stride);
  return at::conv2d(input, weight, bias, {shape.stride, shape.stride}, {shape.padding, shape.padding});
}

}  // namespace reigen::nn
