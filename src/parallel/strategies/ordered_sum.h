// Sums of values in an order of additions that a CPU and a GPU can both keep without waiting for each addition, so that
// both get the same bits: the second half of the values is added to the first half until one value is left.
// Thread rule: the functions keep no state.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace reigen::parallel {

// Returns the sum of `count` values, 0 if there are none. The values are overwritten.
inline double fold(double* values, std::int64_t count) {
  if (count == 0) return 0;
  while (count > 1) {
    const std::int64_t half = (count + 1) / 2;
    for (std::int64_t i = 0; i < count - half; ++i) values[i] += values[half + i];
    count = half;
  }
  return values[0];
}

// Returns the sums over the last dimension, which is not empty, as fold() adds them. The result is a view of `values`,
// which is overwritten. The host does not wait.
inline at::Tensor fold(const at::Tensor& values) {
  std::int64_t count = values.size(-1);
  while (count > 1) {
    const std::int64_t half = (count + 1) / 2;
    values.narrow(-1, 0, count - half).add_(values.narrow(-1, half, count - half));
    count = half;
  }
  return values.select(-1, 0);
}

}  // namespace reigen::parallel
