#include "image/picture_files.h"

#include <png.h>

#include <cstdio>
#include <cstdlib>
#include <stdexcept>
// jpeglib.h needs <cstdio> before it.
#include <jpeglib.h>

namespace reigen::tests {

std::string png_of(unsigned width, unsigned height, int channels, const std::vector<std::uint8_t>& pixels) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = width;
  image.height = height;
  image.format = channels == 1 ? PNG_FORMAT_GRAY : channels == 3 ? PNG_FORMAT_RGB : PNG_FORMAT_RGBA;
  png_alloc_size_t bytes = 0;
  if (png_image_write_to_memory(&image, nullptr, &bytes, 0, pixels.data(), 0, nullptr) == 0) {
    throw std::runtime_error(image.message);
  }
  std::string text(bytes, '\0');
  if (png_image_write_to_memory(&image, text.data(), &bytes, 0, pixels.data(), 0, nullptr) == 0) {
    throw std::runtime_error(image.message);
  }
  return text;
}

namespace {

std::string jpeg(unsigned width, unsigned height, int channels, const std::vector<std::uint8_t>& pixels,
                 const std::vector<jpeg_scan_info>& scans) {
  jpeg_compress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  unsigned char* memory = nullptr;
  unsigned long bytes = 0;
  jpeg_mem_dest(&info, &memory, &bytes);
  info.image_width = width;
  info.image_height = height;
  info.input_components = channels;
  info.in_color_space = channels == 1 ? JCS_GRAYSCALE : channels == 3 ? JCS_RGB : JCS_CMYK;
  jpeg_set_defaults(&info);
  jpeg_set_quality(&info, 95, TRUE);
  info.write_Adobe_marker = channels == 4 ? TRUE : FALSE;
  info.scan_info = scans.empty() ? nullptr : scans.data();
  info.num_scans = static_cast<int>(scans.size());
  jpeg_start_compress(&info, TRUE);
  while (info.next_scanline < height) {
    auto* row = const_cast<std::uint8_t*>(pixels.data()) + info.next_scanline * width * static_cast<unsigned>(channels);
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  jpeg_destroy_compress(&info);
  std::string text(reinterpret_cast<const char*>(memory), bytes);
  std::free(memory);
  return text;
}

}  // namespace

std::string jpeg_of(unsigned width, unsigned height, int channels, const std::vector<std::uint8_t>& pixels) {
  return jpeg(width, height, channels, pixels, {});
}

std::string jpeg_in_scans(unsigned width, unsigned height, const std::vector<std::uint8_t>& pixels) {
  std::vector<jpeg_scan_info> scans(3);
  for (int component = 0; component < 3; ++component) {
    scans[static_cast<std::size_t>(component)] = {
        .comps_in_scan = 1, .component_index = {component}, .Ss = 0, .Se = 63, .Ah = 0, .Al = 0};
  }
  return jpeg(width, height, 3, pixels, scans);
}

std::vector<std::uint8_t> flat(unsigned width, unsigned height, const std::vector<std::uint8_t>& colour) {
  std::vector<std::uint8_t> pixels;
  for (unsigned i = 0; i < width * height; ++i) pixels.insert(pixels.end(), colour.begin(), colour.end());
  return pixels;
}

}  // namespace reigen::tests
