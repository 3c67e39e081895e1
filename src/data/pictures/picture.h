// Reads a picture of any size from a file and scales it.
// Thread rule: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

#include "reigen/image/picture.h"

namespace reigen::data {

// Reads a JPEG or PNG file with image::decode(), which may divide a JPEG by a power of two; both sides remain at least
// `side` long. Throws the IoErrors of format::InputFile, and DataError with the file's name if the file is larger than
// 256 MiB or is refused by image::decode().
image::Picture read_picture(const std::filesystem::path& path, int side);

// Scales the middle square of the picture to side x side pixels. `out` has side·side·3 bytes. If the square shrinks, a
// pixel is the mean of the area that it covers. If the square grows, a pixel is interpolated between the nearest four.
void square(const image::Picture& picture, std::size_t side, std::span<std::uint8_t> out);

}  // namespace reigen::data
