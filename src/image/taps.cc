#include "image/taps.h"

#include <algorithm>
#include <cmath>

namespace reigen::image {

namespace {

// The halves of the weights, for kernels that compute two pixels together.
void split_weights(Taps& taps) {
  const auto groups = static_cast<std::size_t>(taps.groups);
  const auto pixels = static_cast<std::size_t>(taps.size);
  taps.halves.assign((pixels + 1) / 2 * groups * 16, 0);
  for (std::size_t i = 0; i < pixels; ++i) {
    for (std::size_t g = 0; g < groups; ++g) {
      const std::int32_t* weights = taps.weights.data() + (i * groups + g) * kGroup;
      std::int16_t* halves = taps.halves.data() + ((i / 2 * groups + g) * 2 + i % 2) * 8;
      for (std::size_t k = 0; k < kGroup; ++k) {
        halves[k] = static_cast<std::int16_t>(weights[k] >> kLowBits);
        halves[kGroup + k] = static_cast<std::int16_t>(weights[k] & ((1 << kLowBits) - 1));
      }
    }
  }
}

}  // namespace

void fill(Taps& taps, const Line& line) {
  const double scale = (line.end - line.begin) / line.to_size;
  const double support = std::max(scale, 1.0);
  const double slope = 1.0 / support;
  taps.size = line.wanted;
  taps.groups = (static_cast<int>(std::ceil(support)) * 2 + 1 + kGroup - 1) / kGroup;
  const auto stride = static_cast<std::size_t>(kGroup * taps.groups);
  taps.first.resize(static_cast<std::size_t>(line.wanted));
  taps.count.resize(static_cast<std::size_t>(line.wanted));
  taps.weights.assign(stride * static_cast<std::size_t>(line.wanted), 0);
  std::vector<double> factors(stride);
  for (int i = 0; i < line.wanted; ++i) {
    const double middle = line.begin + (line.first + i + 0.5) * scale;
    const int first = std::max(static_cast<int>(middle - support + 0.5), 0);
    const int count = std::min(static_cast<int>(middle + support + 0.5), line.from_size) - first;
    double sum = 0;
    for (int k = 0; k < count; ++k) {
      const double distance = std::abs((k + first - middle + 0.5) * slope);
      factors[static_cast<std::size_t>(k)] = distance < 1.0 ? 1.0 - distance : 0.0;
      sum += factors[static_cast<std::size_t>(k)];
    }
    std::int32_t* weights = taps.weights.data() + stride * static_cast<std::size_t>(i);
    for (int k = 0; k < count; ++k) {
      const double weight = factors[static_cast<std::size_t>(k)] / sum;
      weights[k] = static_cast<std::int32_t>(0.5 + weight * (1 << kWeightBits));
    }
    taps.first[static_cast<std::size_t>(i)] = first;
    taps.count[static_cast<std::size_t>(i)] = count;
  }
  split_weights(taps);
}

void Taps::shift(int begin) {
  for (int& at : first) at -= begin;
}

}  // namespace reigen::image
