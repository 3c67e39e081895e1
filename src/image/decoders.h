// The decoders of the two formats. They hand on the pixels in strips of some rows, which are still in the processor's
// cache when they are used.
// Thread rule: pure functions; the caller's buffers must not be shared.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "reigen/image/picture.h"

namespace reigen::image {

struct Strip {
  int first = 0;  // row of the wanted box
  PixelView rows;
  std::size_t readable = 0;  // bytes that may be read from the beginning of each row
};
using TakeStrip = std::function<void(const Strip&)>;

inline constexpr int kStripRows = 8;
// This many bytes beyond the pixels of a strip may be read.
inline constexpr std::size_t kStripPadding = 64;

// Which pixels to decode: a box of the picture whose sides are divided by `divisor` and rounded up.
struct Wanted {
  Box box;
  int divisor = 1;
};

// The box of the divided picture that covers the box of the whole picture.
Box divided(const Box& box, int divisor);

// All throw the DataErrors that decode.h describes. `row` and `strip` are reused between calls.
struct JpegBuffers {
  std::vector<std::uint8_t> row;
  std::vector<std::uint8_t> strip;
};
bool is_jpeg(std::span<const std::byte> bytes);
Size size_of_jpeg(std::span<const std::byte> bytes, const std::string& name);
void decode_jpeg(std::span<const std::byte> bytes, const std::string& name, const Wanted& wanted, JpegBuffers& buffers,
                 const TakeStrip& take);

bool is_png(std::span<const std::byte> bytes);
Size size_of_png(std::span<const std::byte> bytes, const std::string& name);
void decode_png(std::span<const std::byte> bytes, const std::string& name, Picture& picture);

// Throws the DataError for bytes of another format.
[[noreturn]] void refuse_kind(std::span<const std::byte> bytes, const std::string& name);

// Throws the DataError for a picture that cannot be decoded.
[[noreturn]] void refuse_picture(const std::string& name, const std::string& got, const std::string& expected,
                                 const std::string& fix = "fetch the file again, or remove it");

}  // namespace reigen::image
