// JPEG files of every kind that libjpeg can write, for tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace reigen::tests {

struct JpegKind {
  int width = 0;
  int height = 0;
  int components = 3;  // 1 grey, 3 colour, 4 CMYK
  int across = 1;      // sampling factors of the first component
  int down = 1;
  bool progressive = false;
  bool in_scans = false;  // each component in a scan of its own
  int restart_every = 0;  // blocks between restart markers
  int quality = 90;
};

// Draws a picture with edges, slopes and noise, and codes it.
std::vector<std::byte> written_jpeg(const JpegKind& kind, std::uint32_t seed = 1);

}  // namespace reigen::tests
