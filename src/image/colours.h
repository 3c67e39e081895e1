// Changes the colours of pixels as Pillow's ImageEnhance and torchvision do.
// Thread rule: a pure function; the pixels must not be shared.
#pragma once

#include <cstddef>
#include <cstdint>

#include "reigen/image/draft.h"

namespace reigen::image {

struct Pixels {
  std::uint8_t* first = nullptr;
  Size size = {};
  std::size_t stride = 0;
  std::uint8_t* row(int y) const { return first + stride * static_cast<std::size_t>(y); }
};

// Left and right change sides.
void mirror_rows(const Pixels& pixels);

void change_colours(const Colours& colours, const Pixels& pixels);

}  // namespace reigen::image
