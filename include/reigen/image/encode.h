// Codes pictures as JPEG. Thread rule: pure functions.
#pragma once

#include <cstddef>
#include <vector>

#include "reigen/image/picture.h"

namespace reigen::image {

// A baseline JPEG file with colours at half the resolution (4:2:0), Huffman tables made for the picture, and no
// metadata. The bytes are a function of the pixels, the quality and the version of libjpeg. Quality: 1 to 100, as
// libjpeg and Pillow count it. Throws InvalidArgument for another quality, for a side that is not in 1..65,500, and for
// pixels that do not fill the picture.
std::vector<std::byte> encode_jpeg(const Picture& picture, int quality);

}  // namespace reigen::image
