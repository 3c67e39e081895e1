#include <png.h>

#include <fmt/format.h>

#include "data/picture.h"

namespace reigen::data {

namespace {

struct Image {
  Image() { image.version = PNG_IMAGE_VERSION; }
  ~Image() { png_image_free(&image); }
  Image(const Image&) = delete;  // libpng's own memory hangs on it
  Image& operator=(const Image&) = delete;
  png_image image{};
};

}  // namespace

Picture decode_png(std::span<const std::byte> bytes, const std::string& name) {
  Image reader;
  png_image& image = reader.image;
  if (png_image_begin_read_from_memory(&image, bytes.data(), bytes.size()) == 0) {
    refuse_picture(name, fmt::format("libpng: {}", image.message), "a whole PNG file");
  }
  if (std::size_t{image.width} * image.height > kMostPixels) {
    refuse_picture(name, fmt::format("{} x {} pixels", image.width, image.height), "at most 100 million pixels");
  }
  image.format = PNG_FORMAT_RGB;
  Picture picture{.width = image.width, .height = image.height, .pixels = {}};
  picture.pixels.resize(PNG_IMAGE_SIZE(image));
  const png_color black{};
  if (png_image_finish_read(&image, &black, picture.pixels.data(), 0, nullptr) == 0) {
    refuse_picture(name, fmt::format("libpng: {}", image.message), "a whole PNG file");
  }
  return picture;
}

}  // namespace reigen::data
