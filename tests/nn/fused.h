// Comparisons for the tests of fused operations.
// Thread rule: one thread.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include "harness/torch.h"

namespace reigen::nn::fused_testing {

using Tensors = std::vector<at::Tensor>;

inline const at::ScalarType kTypes[] = {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf};

// The largest difference that rounding may make, relative to the largest value.
inline double rounding_of(at::ScalarType type) {
  switch (type) {
    case at::kDouble: return 1e-12;
    case at::kFloat: return 2e-6;
    case at::kHalf: return 2e-3;
    default: return 1.6e-2;
  }
}

// `known` has the values in fp64. The tolerance is relative to its largest value, but not to less than `least`. If the
// largest value is so small that `known` is 0 and its own rounding, the tolerance is absolute.
inline void expect_close(const at::Tensor& found, const at::Tensor& known, double rounding, const std::string& what,
                         double least = 0) {
  ASSERT_EQ(found.defined(), known.defined()) << what;
  if (!found.defined()) return;
  ASSERT_EQ(found.sizes(), known.sizes()) << what;
  if (found.numel() == 0) return;
  const double largest = known.abs().max().item<double>();
  const double apart = (found.to(at::kDouble) - known.to(at::kDouble)).abs().max().item<double>();
  constexpr double kNearlyZero = 1e-10;
  EXPECT_LE(apart, rounding * (largest > kNearlyZero ? std::max(largest, least) : 1)) << what;
}

// Leaves of the type with these values.
inline Tensors leaves(const Tensors& values, at::ScalarType type) {
  Tensors result;
  for (const at::Tensor& one : values) {
    result.push_back(one.defined() ? one.to(type).detach().clone().requires_grad_() : one);
  }
  return result;
}

// The results of a function, then the gradients of all its arguments, each result multiplied with a fixed pattern that
// has the same values in all types. The results may be changed by the backward.
inline Tensors with_gradients(const std::function<Tensors(const Tensors&)>& function, const Tensors& arguments) {
  const Tensors results = function(arguments);
  Tensors all;
  Tensors along;
  std::int64_t number = 0;
  for (const at::Tensor& result : results) {
    all.push_back(result.detach().clone());
    ++number;
    along.push_back(at::cos(at::arange(number, number + result.numel(), at::kDouble) * 1.3)
                        .reshape(result.sizes())
                        .to(at::kBFloat16)
                        .to(result.options()));
  }
  Tensors inputs;
  for (const at::Tensor& one : arguments) {
    if (one.defined()) inputs.push_back(one);
  }
  for (const at::Tensor& gradient : torch::autograd::grad(results, inputs, along, {}, false, true)) {
    all.push_back(gradient.defined() ? gradient.detach().clone() : at::Tensor());
  }
  return all;
}

// Compares values and gradients of `found` in a type with those of `known` in fp64, for the same (rounded) arguments.
inline void compare(const std::function<Tensors(const Tensors&)>& found,
                    const std::function<Tensors(const Tensors&)>& known, const Tensors& values, at::ScalarType type,
                    const std::string& what, double factor = 1, double least = 0) {
  const Tensors arguments = leaves(values, type);
  const Tensors got = with_gradients(found, arguments);
  const Tensors expected = with_gradients(known, leaves(arguments, at::kDouble));
  ASSERT_EQ(got.size(), expected.size()) << what;
  for (std::size_t i = 0; i < got.size(); ++i) {
    expect_close(got[i], expected[i], factor * rounding_of(type), what + ", result " + std::to_string(i), least);
  }
}

// For compare(): with few columns, a gradient may be a small difference of numbers of about 1.
inline double least_of(std::int64_t columns) { return columns <= 3 ? 1 : 0; }

inline std::string name_of(at::ScalarType type, std::int64_t rows, std::int64_t columns) {
  return std::string(c10::toString(type)) + " " + std::to_string(rows) + "x" + std::to_string(columns);
}

}  // namespace reigen::nn::fused_testing
