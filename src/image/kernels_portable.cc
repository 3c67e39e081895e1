#include <algorithm>

#include "image/kernels.h"

namespace reigen::image::portable {

namespace {

constexpr std::int32_t kHalf = 1 << (kWeightBits - 1);

// Weights are not negative and add up to about 1, so only the upper bound can be passed.
std::uint8_t rounded(std::int32_t sum) { return static_cast<std::uint8_t>(std::min(sum >> kWeightBits, 255)); }

}  // namespace

void across_pixels(const Taps& taps, const std::uint8_t* from, std::uint8_t* to, int begin, int end) {
  for (int i = begin; i < end; ++i) {
    const std::int32_t* weights = taps.weights_of(i);
    const std::uint8_t* pixel = from + 3 * static_cast<std::ptrdiff_t>(taps.first[static_cast<std::size_t>(i)]);
    std::int32_t red = kHalf;
    std::int32_t green = kHalf;
    std::int32_t blue = kHalf;
    for (int k = 0; k < taps.count[static_cast<std::size_t>(i)]; ++k, pixel += 3) {
      red += weights[k] * pixel[0];
      green += weights[k] * pixel[1];
      blue += weights[k] * pixel[2];
    }
    std::uint8_t* out = to + 3 * static_cast<std::ptrdiff_t>(i);
    out[0] = rounded(red);
    out[1] = rounded(green);
    out[2] = rounded(blue);
  }
}

void across(const Taps& taps, const Rows& from, std::uint8_t* to, std::size_t stride) {
  for (int y = 0; y < from.rows.size.height; ++y) {
    across_pixels(taps, from.rows.row(y), to + stride * static_cast<std::size_t>(y), 0, taps.size);
  }
}

void down(const DownPass& pass, std::uint8_t* to, std::size_t bytes) {
  constexpr std::size_t kBlock = 64;
  for (std::size_t begin = 0; begin < bytes; begin += kBlock) {
    const std::size_t size = std::min(kBlock, bytes - begin);
    std::int32_t sums[kBlock];
    std::fill_n(sums, size, kHalf);
    for (int k = 0; k < pass.count; ++k) {
      const std::uint8_t* from = pass.from + pass.stride * static_cast<std::size_t>(k) + begin;
      for (std::size_t i = 0; i < size; ++i) sums[i] += pass.weights[k] * from[i];
    }
    for (std::size_t i = 0; i < size; ++i) to[begin + i] = rounded(sums[i]);
  }
}

}  // namespace reigen::image::portable
