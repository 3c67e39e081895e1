// Handwritten digits drawn by a program: the default data, which needs no download. Pen strokes of the ten digits in
// several ways of writing, bent, rotated, sheared, scaled and moved at random, with a pen of random width and pixel
// noise. A small convolutional network gets some 98.5 % of the test images right after two epochs. Every byte is a pure
// function of (seed, split, index), on every machine: integer random numbers (Philox), and of floating point only + - *
// / and sqrt, which IEEE 754 fixes.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <span>

#include "reigen/data/dataset.h"

namespace reigen::data {

inline constexpr std::size_t kDigitPixels = 28 * 28;

// Draws one image, white (255) on black (0), row by row, and returns the digit, 0..9. Some 15 us.
int draw_digit(std::uint64_t seed, Split split, std::int64_t index, std::span<std::uint8_t, kDigitPixels> pixels);

struct DigitsOptions {
  Split split = Split::kTrain;
  std::int64_t size = 0;  // 0: 20,000 for training, 4,000 for test
  std::uint64_t seed = 0;
  c10::ScalarType type = c10::kFloat;  // or kDouble, of the input
};

// Tensors as mnist() gives them. An image is drawn when it is first asked for, and kept.
// Throws InvalidArgument (negative size, another type).
DatasetPtr digits(const DigitsOptions& options = {});

}  // namespace reigen::data
