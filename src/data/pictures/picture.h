// A picture of any size as bytes, read from a file and brought to size.
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
  std::vector<std::uint8_t> pixels;  // row by row, red green blue
};

// JPEG or PNG, told by the content, with the values that Pillow's Image.open(path).convert("RGB") gives, so those that
// torchvision trains on: no gamma, profile or turn by EXIF is applied, opacity is left out, of 16 bits the high byte is
// taken (of grey too, which Pillow clips at 255). Damage is refused where it loses pixels, also where Pillow makes them
// up (docs/files.md). A JPEG may come smaller than it is, by a power of two, but with both sides at least `side`.
// Throws IoError as format::InputFile, and DataError naming the file: neither of the two, damaged, cut, larger than 100
// million pixels.
Picture read_picture(const std::filesystem::path& path, std::size_t side);

// The two halves of read_picture. `name` is for messages.
Picture decode_jpeg(std::span<const std::byte> bytes, const std::string& name, std::size_t side);
Picture decode_png(std::span<const std::byte> bytes, const std::string& name);

// The middle square, shrunk or stretched to side x side: out = side·side·3 bytes. A pixel is the mean of the part of
// the square it covers when that shrinks, interpolated between the nearest four when it stretches.
void square(const Picture& picture, std::size_t side, std::span<std::uint8_t> out);

inline constexpr std::size_t kMostPixels = 100'000'000;

// DataError for read_picture and its halves.
[[noreturn]] void refuse_picture(const std::string& name, const std::string& got, const std::string& expected,
                                 const std::string& fix = "fetch the file again, or remove it");

}  // namespace reigen::data
