// Reads a picture of any size from a file and scales it.
// Thread rule: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace reigen::data {

struct Picture {
  std::size_t width = 0;
  std::size_t height = 0;
  std::vector<std::uint8_t> pixels;  // row by row, as red, green, blue
};

// Reads a JPEG or PNG file; the format is recognised by content, not by name. The values are those of Pillow's
// Image.open(path).convert("RGB"), which torchvision uses for training: no gamma, colour profile or EXIF rotation is
// applied, and opacity is dropped. Of a value of 16 bits the high byte is taken. Only grey of 16 bits differs from
// Pillow's values, because Pillow clips it at 255. A file whose damage loses pixels is refused, even if Pillow invents
// such pixels (docs/files.md). A JPEG may be decoded at its size divided by a power of two, but both sides remain at
// least `side` long. Throws the IoErrors of format::InputFile. Throws DataError with the file's name if the file is
// neither JPEG nor PNG, is damaged or truncated, or has more than 100 million pixels.
Picture read_picture(const std::filesystem::path& path, std::size_t side);

// The decoders that read_picture uses. `name` is for messages.
Picture decode_jpeg(std::span<const std::byte> bytes, const std::string& name, std::size_t side);
Picture decode_png(std::span<const std::byte> bytes, const std::string& name);

// Scales the middle square of the picture to side x side pixels. `out` has side·side·3 bytes. If the square shrinks, a
// pixel is the mean of the area that it covers. If the square grows, a pixel is interpolated between the nearest four.
void square(const Picture& picture, std::size_t side, std::span<std::uint8_t> out);

inline constexpr std::size_t kMostPixels = 100'000'000;

// Throws the DataError that read_picture() and its decoders throw for a picture that they refuse.
[[noreturn]] void refuse_picture(const std::string& name, const std::string& got, const std::string& expected,
                                 const std::string& fix = "fetch the file again, or remove it");

}  // namespace reigen::data
