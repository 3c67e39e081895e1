#include "image/written_jpeg.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
// The headers of libjpeg need <cstdio> before them.
#include <jpeglib.h>

namespace reigen::tests {

namespace {

std::uint8_t drawn(int x, int y, int channel, std::mt19937& random) {
  const bool stripe = (x / 7 + y / 5 + channel) % 3 == 0;
  const double slope = 100 + 90 * std::sin(0.13 * x * (channel + 1)) * std::cos(0.11 * y);
  return static_cast<std::uint8_t>((stripe ? 200 : slope) + static_cast<double>(random() % 56));
}

}  // namespace

std::vector<std::byte> written_jpeg(const JpegKind& kind, std::uint32_t seed) {
  std::mt19937 random(seed);
  jpeg_compress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  unsigned char* memory = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&info, &memory, &size);
  info.image_width = static_cast<JDIMENSION>(kind.width);
  info.image_height = static_cast<JDIMENSION>(kind.height);
  info.input_components = kind.components;
  info.in_color_space = kind.components == 1 ? JCS_GRAYSCALE : kind.components == 3 ? JCS_RGB : JCS_CMYK;
  jpeg_set_defaults(&info);
  jpeg_set_quality(&info, kind.quality, TRUE);
  if (kind.components > 1) {
    info.comp_info[0].h_samp_factor = kind.across;
    info.comp_info[0].v_samp_factor = kind.down;
  }
  info.restart_interval = static_cast<unsigned>(kind.restart_every);
  std::vector<jpeg_scan_info> scans(static_cast<std::size_t>(kind.components));
  if (kind.progressive) jpeg_simple_progression(&info);
  if (kind.in_scans) {
    for (int i = 0; i < kind.components; ++i) {
      scans[static_cast<std::size_t>(i)] = {
          .comps_in_scan = 1, .component_index = {i, 0, 0, 0}, .Ss = 0, .Se = 63, .Ah = 0, .Al = 0};
    }
    info.scan_info = scans.data();
    info.num_scans = kind.components;
  }
  jpeg_start_compress(&info, TRUE);
  std::vector<std::uint8_t> row(static_cast<std::size_t>(kind.width * kind.components));
  for (int y = 0; y < kind.height; ++y) {
    for (int i = 0; i < kind.width * kind.components; ++i) {
      row[static_cast<std::size_t>(i)] = drawn(i / kind.components, y, i % kind.components, random);
    }
    JSAMPROW line = row.data();
    jpeg_write_scanlines(&info, &line, 1);
  }
  jpeg_finish_compress(&info);
  jpeg_destroy_compress(&info);
  const auto* begin = reinterpret_cast<const std::byte*>(memory);
  std::vector<std::byte> bytes(begin, begin + size);
  std::free(memory);
  return bytes;
}

}  // namespace reigen::tests
