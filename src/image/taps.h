// The weights with which pixels of a line add up to the pixels of a resized line.
// Thread rule: a value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace reigen::image {

inline constexpr int kWeightBits = 32 - 8 - 2;  // as in Pillow: a sum of weighted bytes fits into 32 bits
// A weight is also stored as two numbers of 16 bits, high · 2^kLowBits + low, which vector instructions multiply by
// bytes and add in pairs. The sums of both parts give exactly the sum of the whole weights.
inline constexpr int kLowBits = 11;
inline constexpr int kGroup = 4;  // weights of a pixel that are stored together

// Which pixels of a resized line are wanted, and what the line is made of.
struct Line {
  int from_size = 0;  // pixels of the source line
  double begin = 0;   // the part of the source line that fills the whole resized line
  double end = 0;
  int to_size = 0;  // pixels of the whole resized line
  int first = 0;    // the wanted pixels of the resized line
  int wanted = 0;
};

struct Taps {
  int size = 0;                       // pixels of the result
  int groups = 0;                     // largest number of groups of a pixel
  std::vector<int> first;             // for each pixel, the first source pixel that counts
  std::vector<int> count;             // and how many count
  std::vector<std::int32_t> weights;  // kGroup · groups for each pixel; zero from `count` on
  // For each two neighbouring pixels and each group: the eight halves of the first pixel's weights (high 0 1, high 2 3,
  // low 0 1, low 2 3), and the same of the second pixel.
  std::vector<std::int16_t> halves;

  // Source pixels that count for any pixel: [begin(), end()).
  int begin() const { return first.front(); }
  int end() const { return first.back() + count.back(); }
  const std::int32_t* weights_of(int pixel) const {
    return weights.data() + static_cast<std::size_t>(kGroup * groups) * static_cast<std::size_t>(pixel);
  }
  // Counts the source pixels from another beginning.
  void shift(int begin);
};

// Computes the weights, as Pillow's precompute_coeffs() and normalize_coeffs_8bpc() do. Reuses the memory of `taps`.
void fill(Taps& taps, const Line& line);

}  // namespace reigen::image
