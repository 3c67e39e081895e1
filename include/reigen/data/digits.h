// Handwritten digits drawn by a program. They are the default data and need no download. Each image shows the pen
// strokes of a digit in one of several ways of writing it, randomly bent, rotated, sheared, scaled and moved, with a
// random pen width and pixel noise. A small convolutional network classifies about 98.5 % of the test images correctly
// after two epochs. Every byte is a pure function of (seed, split, index) and is the same on every machine: the random
// numbers are integers (Philox), and the floating-point operations are only + - * / and sqrt, which IEEE 754 defines
// exactly.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <span>

#include "reigen/data/dataset.h"

namespace reigen::data {

inline constexpr std::size_t kDigitPixels = 28 * 28;

// Draws one image, white (255) on black (0), row by row, and returns the digit, 0..9. Takes about 15 us.
int draw_digit(std::uint64_t seed, Split split, std::int64_t index, std::span<std::uint8_t, kDigitPixels> pixels);

struct DigitsOptions {
  Split split = Split::kTrain;
  std::int64_t size = 0;  // number of images; 0 means 20,000 for training and 4,000 for test
  std::uint64_t seed = 0;
  c10::ScalarType type = c10::kFloat;  // type of the input: kFloat or kDouble
};

// A dataset whose tensors have the shapes and types of those of mnist(). An image is drawn when it is first read, and
// is then kept in memory. Throws InvalidArgument for a negative size and for another type.
DatasetPtr digits(const DigitsOptions& options = {});

}  // namespace reigen::data
