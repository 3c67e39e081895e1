// The inverse of the normal distribution function. It uses only operations that IEEE 754 specifies, so it gives the
// same bits everywhere. std::log does not promise this.
// Thread rule: pure functions.
#pragma once

namespace reigen::nn {

// x with P(X <= x) = p for a standard normal X, 0 < p < 1; relative error about 1e-7.
double normal_quantile(double p);

}  // namespace reigen::nn
