// Pictures of 8-bit red, green and blue, and the sizes and boxes that operations on them use.
// Thread rule: these types are values; every thread may have its own copy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace reigen::image {

// No picture may have more pixels than this.
inline constexpr std::int64_t kMostPixels = 100'000'000;

struct Size {
  int width = 0;
  int height = 0;
  bool operator==(const Size&) const = default;
};

// The pixels of columns left..left+width-1 in rows top..top+height-1.
struct Box {
  int left = 0;
  int top = 0;
  int width = 0;
  int height = 0;
  bool operator==(const Box&) const = default;
  Size size() const { return {width, height}; }
};

struct Picture {
  int width = 0;
  int height = 0;
  std::vector<std::uint8_t> pixels = {};  // row by row without gaps, as red, green, blue
  Size size() const { return {width, height}; }
};

// Pixels in the memory of someone else.
struct PixelView {
  const std::uint8_t* pixels = nullptr;  // red of the first pixel
  Size size = {};
  std::size_t stride = 0;  // bytes from one row to the next

  PixelView() = default;
  PixelView(const std::uint8_t* first, Size of, std::size_t row_bytes) : pixels(first), size(of), stride(row_bytes) {}
  PixelView(const Picture& picture)  // NOLINT(google-explicit-constructor): a picture is a view of itself
      : PixelView(picture.pixels.data(), picture.size(), 3 * static_cast<std::size_t>(picture.width)) {}
  const std::uint8_t* row(int y) const { return pixels + stride * static_cast<std::size_t>(y); }
};

}  // namespace reigen::image
