#include "reigen/image/decode.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "base/check.h"
#include "image/decoders.h"
#include "image/picture_kind.h"

namespace reigen::image {

namespace {

bool begins_with(std::span<const std::byte> bytes, std::string_view magic) {
  return bytes.size() >= magic.size() && std::memcmp(bytes.data(), magic.data(), magic.size()) == 0;
}

void copy_rows(const PixelView& from, int left, int top, Picture& to, int first, int rows) {
  const std::size_t row_bytes = 3 * static_cast<std::size_t>(to.width);
  for (int y = 0; y < rows; ++y) {
    std::memcpy(to.pixels.data() + row_bytes * static_cast<std::size_t>(first + y),
                from.row(top + y) + 3 * static_cast<std::size_t>(left), row_bytes);
  }
}

}  // namespace

bool is_jpeg(std::span<const std::byte> bytes) { return begins_with(bytes, "\xFF\xD8\xFF"); }
bool is_png(std::span<const std::byte> bytes) { return begins_with(bytes, "\x89PNG\r\n\x1A\n"); }

void refuse_picture(const std::string& name, const std::string& got, const std::string& expected,
                    const std::string& fix) {
  throw DataError(Report{
      .what = fmt::format("cannot decode the picture '{}'", name), .got = got, .expected = expected, .fix = fix});
}

void refuse_kind(std::span<const std::byte> bytes, const std::string& name) {
  const PictureKind kind = kind_of_picture(bytes);
  refuse_picture(name, kind.name, "a JPEG or PNG file", kind.fix);
}

Box divided(const Box& box, int divisor) {
  const int left = box.left / divisor;
  const int top = box.top / divisor;
  return {left, top, (box.left + box.width + divisor - 1) / divisor - left,
          (box.top + box.height + divisor - 1) / divisor - top};
}

int divisor_for(Size size, Size at_least) {
  int divisor = 1;
  if (at_least.width <= 0 || at_least.height <= 0) return divisor;
  while (divisor < 8 && size.width / (2 * divisor) >= at_least.width &&
         size.height / (2 * divisor) >= at_least.height) {
    divisor *= 2;
  }
  return divisor;
}

Size size_of(std::span<const std::byte> bytes, const std::string& name) {
  if (is_jpeg(bytes)) return size_of_jpeg(bytes, name);
  if (is_png(bytes)) return size_of_png(bytes, name);
  refuse_kind(bytes, name);
}

Picture decode(std::span<const std::byte> bytes, const std::string& name, const DecodeOptions& options) {
  const Size whole = size_of(bytes, name);
  Box region = options.region;
  if (region == Box{}) region = {0, 0, whole.width, whole.height};
  REIGEN_CHECK(region.left >= 0 && region.top >= 0 && region.width > 0 && region.height > 0 &&
                   region.width <= whole.width - region.left && region.height <= whole.height - region.top,
               "the region of '{}' must lie within its {} x {} pixels, got {} x {} pixels from ({}, {})", name,
               whole.width, whole.height, region.width, region.height, region.left, region.top);
  Picture picture;
  if (is_png(bytes)) {
    decode_png(bytes, name, picture);
    if (region.size() == whole) return picture;
    Picture part{.width = region.width, .height = region.height};
    part.pixels.resize(3 * static_cast<std::size_t>(part.width) * static_cast<std::size_t>(part.height));
    copy_rows(picture, region.left, region.top, part, 0, part.height);
    return part;
  }
  const int divisor = divisor_for(region.size(), options.scale_to);
  const Box box = divided(region, divisor);
  picture.width = box.width;
  picture.height = box.height;
  picture.pixels.resize(3 * static_cast<std::size_t>(box.width) * static_cast<std::size_t>(box.height));
  JpegBuffers buffers;
  decode_jpeg(bytes, name, {.box = box, .divisor = divisor}, buffers,
              [&](const Strip& strip) { copy_rows(strip.rows, 0, 0, picture, strip.first, strip.rows.size.height); });
  return picture;
}

}  // namespace reigen::image
