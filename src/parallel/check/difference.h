// How far two tensors are apart that should be equal up to rounding.
// Thread rule: pure functions; any thread may call them.
#pragma once

#include <ATen/core/Tensor.h>

namespace reigen::parallel {

// The largest relative difference that counts as rounding: 1e-9 for fp64, 1e-4 for fp32, 2e-2 for 16-bit types.
double default_tolerance(at::ScalarType type);

// The element that differs most. `relative` is its difference divided by `magnitude`, or if that is 0 by the largest
// magnitude in `alone`, but at least by 1e-3. It is infinite if there is a NaN.
struct Difference {
  double relative = 0;
  double alone = 0;
  double in_parallel = 0;
};

// An undefined tensor counts as zeros.
Difference difference_of(const at::Tensor& alone, const at::Tensor& in_parallel, double magnitude = 0);

}  // namespace reigen::parallel
