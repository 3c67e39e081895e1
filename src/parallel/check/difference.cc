#include "parallel/check/difference.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

namespace reigen::parallel {
namespace {

constexpr double kSmall = 1e-3;

}  // namespace

double default_tolerance(at::ScalarType type) {
  if (type == at::kDouble) return 1e-9;
  return type == at::kFloat ? 1e-4 : 2e-2;
}

Difference difference_of(const at::Tensor& alone, const at::Tensor& in_parallel, double magnitude) {
  if (!alone.defined() && !in_parallel.defined()) return {};
  const at::Tensor a = (alone.defined() ? alone : at::zeros_like(in_parallel)).to(at::kDouble).flatten();
  const at::Tensor b = (in_parallel.defined() ? in_parallel : at::zeros_like(alone)).to(at::kDouble).flatten();
  if (a.numel() == 0) return {};
  const at::Tensor apart = (a - b).abs();
  const auto worst = apart.argmax().item<std::int64_t>();  // if there is a NaN, argmax() returns its place
  const double by = magnitude > 0 ? magnitude : std::max(a.abs().max().item<double>(), kSmall);
  Difference found{apart[worst].item<double>() / by, a[worst].item<double>(), b[worst].item<double>()};
  if (std::isnan(found.relative)) found.relative = HUGE_VAL;
  return found;
}

}  // namespace reigen::parallel
