// Wichura, Algorithm AS 241: The percentage points of the normal distribution (Applied Statistics 37, 1988), PPND7.
#include "nn/normal_quantile.h"

#include <cmath>

namespace reigen::nn {

namespace {

// Returns log x for 0 < x <= 1. With x = m·2^e and s = (m-1)/(m+1): log x = e·log 2 + 2·(s + s^3/3 + s^5/5 + ...). |s|
// is below 0.172.
double natural_log(double x) {
  int exponent = 0;
  double m = std::frexp(x, &exponent);  // exact
  if (m < 0.70710678118654752) {
    m *= 2;
    --exponent;
  }
  const double s = (m - 1) / (m + 1);
  double sum = 0;
  for (int k = 23; k >= 1; k -= 2) sum = sum * s * s + 1.0 / k;
  return exponent * 0.69314718055994531 + 2 * s * sum;
}

}  // namespace

double normal_quantile(double p) {
  const double q = p - 0.5;
  if (std::abs(q) <= 0.425) {
    const double r = 0.180625 - q * q;
    return q * (((59.109374720 * r + 159.29113202) * r + 50.434271938) * r + 3.3871327179) /
           (((67.187563600 * r + 78.757757664) * r + 17.895169469) * r + 1.0);
  }
  const double tail = std::sqrt(-natural_log(q < 0 ? p : 1 - p));
  double x = 0;
  if (tail <= 5) {
    const double r = tail - 1.6;
    x = (((0.17023821103 * r + 1.3067284816) * r + 2.7568153900) * r + 1.4234372777) /
        ((0.12021132975 * r + 0.73700164250) * r + 1.0);
  } else {
    const double r = tail - 5;
    x = (((0.017337203997 * r + 0.42868294337) * r + 3.0812263860) * r + 6.6579051150) /
        ((0.012258202635 * r + 0.24197894225) * r + 1.0);
  }
  return q < 0 ? -x : x;
}

}  // namespace reigen::nn
