// JPEG and PNG files for tests, written by the libraries that the readers use.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace reigen::tests {

// Pixels row by row, `channels` bytes each: 1 grey, 3 red green blue, 4 with opacity (PNG) or CMYK as Adobe writes it
// (JPEG).
std::string png_of(unsigned width, unsigned height, int channels, const std::vector<std::uint8_t>& pixels);
std::string jpeg_of(unsigned width, unsigned height, int channels, const std::vector<std::uint8_t>& pixels);
// Red, green and blue pixels. Each colour is a scan of its own, one after the other.
std::string jpeg_in_scans(unsigned width, unsigned height, const std::vector<std::uint8_t>& pixels);

// The pixels of a picture of one colour.
std::vector<std::uint8_t> flat(unsigned width, unsigned height, const std::vector<std::uint8_t>& colour);

}  // namespace reigen::tests
