#include "reigen/image/resize.h"

#include <algorithm>

#include "base/check.h"
#include "image/kernels.h"

namespace reigen::image {

namespace {

constexpr int kMostOfASide = 65'535;

void require_side(int length, const char* what) {
  REIGEN_CHECK(length > 0 && length <= kMostOfASide, "resize: {} must be in 1..{} pixels, got {}", what, kMostOfASide,
               length);
}

}  // namespace

Picture resize(const PixelView& from, Size to, const ResizeOptions& options) {
  require_side(from.size.width, "the picture's width");
  require_side(from.size.height, "the picture's height");
  require_side(to.width, "the new width");
  require_side(to.height, "the new height");
  Area area = options.area;
  if (area == Area{}) area = {0, 0, static_cast<double>(from.size.width), static_cast<double>(from.size.height)};
  REIGEN_CHECK(area.left >= 0 && area.top >= 0 && area.left < area.right && area.top < area.bottom &&
                   area.right <= from.size.width && area.bottom <= from.size.height,
               "resize: the area must lie within the {} x {} pixels of the picture, got ({}, {}) to ({}, {})",
               from.size.width, from.size.height, area.left, area.top, area.right, area.bottom);
  Box part = options.part;
  if (part == Box{}) part = {0, 0, to.width, to.height};
  REIGEN_CHECK(part.left >= 0 && part.top >= 0 && part.width > 0 && part.height > 0 &&
                   part.width <= to.width - part.left && part.height <= to.height - part.top,
               "resize: the part must lie within the {} x {} pixels of the result, got {} x {} from ({}, {})", to.width,
               to.height, part.width, part.height, part.left, part.top);
  Taps across;
  Taps down;
  fill(across, {from.size.width, area.left, area.right, to.width, part.left, part.width});
  fill(down, {from.size.height, area.top, area.bottom, to.height, part.top, part.height});
  const int first_row = down.begin();
  down.shift(first_row);
  const std::size_t row_bytes = 3 * static_cast<std::size_t>(part.width);
  const std::size_t stride = row_bytes + kRowPadding;
  const PixelView rows(from.row(first_row), {from.size.width, down.end()}, from.stride);
  std::vector<std::uint8_t> middle(stride * static_cast<std::size_t>(down.end()));
  kernels().across(across, {.rows = rows, .readable = 3 * static_cast<std::size_t>(from.size.width)}, middle.data(),
                   stride);
  Picture result{.width = part.width, .height = part.height};
  result.pixels.resize(row_bytes * static_cast<std::size_t>(part.height));
  for (int y = 0; y < part.height; ++y) {
    const auto at = static_cast<std::size_t>(y);
    const std::uint8_t* first = middle.data() + stride * static_cast<std::size_t>(down.first[at]);
    kernels().down({.weights = down.weights_of(y), .count = down.count[at], .from = first, .stride = stride},
                   result.pixels.data() + row_bytes * at, row_bytes);
  }
  return result;
}

Size with_shorter_side(Size size, int length) {
  require_side(length, "the shorter side");
  require_side(size.width, "the picture's width");
  require_side(size.height, "the picture's height");
  const double shorter = std::min(size.width, size.height);
  const double longer = std::max(size.width, size.height);
  const int other = static_cast<int>(length * longer / shorter);
  return size.width <= size.height ? Size{length, other} : Size{other, length};
}

}  // namespace reigen::image
