// The inverse of the normal distribution function. It uses only operations that IEEE 754 specifies, so it gives the
// same bits everywhere. std::log does not promise this.
// Thread rule: pure functions.
#pragma once

namespace reigen::nn {

// Returns x with P(X <= x) = p, where X is standard normal and 0 < p < 1. The relative error is about 1e-7.
double normal_quantile(double p);

}  // namespace reigen::nn
