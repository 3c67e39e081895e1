// The loops over pixels. They are written for several instruction sets, and at run time the fastest that the processor
// has is chosen. All give the same bits, because they compute in integers.
// Thread rule: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>

#include "image/taps.h"
#include "reigen/image/picture.h"

namespace reigen::image {

// Kernels may write this many bytes beyond the end of a row of their result.
inline constexpr std::size_t kRowPadding = 16;

// The weights of one row of the result, and the rows that they weigh.
struct DownPass {
  const std::int32_t* weights = nullptr;
  int count = 0;
  const std::uint8_t* from = nullptr;  // first of `count` rows
  std::size_t stride = 0;
};

struct Rows {
  PixelView rows;
  std::size_t readable = 0;  // bytes that may be read from the beginning of each row
};

struct Kernels {
  const char* name;
  // For every row y and pixel i: to[y][i] = (sum over k of taps.weights[i][k] · from[y][taps.first[i] + k]) >> 22,
  // rounded. Rows of `to` are `stride` bytes apart, with at least kRowPadding bytes after the last pixel.
  void (*across)(const Taps& taps, const Rows& from, std::uint8_t* to, std::size_t stride);
  // to[i] = (sum over k of weights[k] · from[k][i]) >> 22, rounded, for `bytes` bytes.
  void (*down)(const DownPass& pass, std::uint8_t* to, std::size_t bytes);
};

const Kernels& kernels();                           // the fastest of this processor
const Kernels* kernels_for_test(const char* name);  // "portable" or "avx2"; null if the processor lacks it

namespace portable {
void across(const Taps& taps, const Rows& from, std::uint8_t* to, std::size_t stride);
void down(const DownPass& pass, std::uint8_t* to, std::size_t bytes);
// Only the pixels [begin, end) of one row.
void across_pixels(const Taps& taps, const std::uint8_t* from, std::uint8_t* to, int begin, int end);
}  // namespace portable
namespace avx2 {
void across(const Taps& taps, const Rows& from, std::uint8_t* to, std::size_t stride);
void down(const DownPass& pass, std::uint8_t* to, std::size_t bytes);
}  // namespace avx2

}  // namespace reigen::image
