#include <png.h>

#include <algorithm>
#include <array>
#include <csetjmp>
#include <cstring>
#include <string_view>

#include <fmt/format.h>

#include "image/decoders.h"

namespace reigen::image {

namespace {

// The state that remains valid when libpng leaves by longjmp() after an error. It has only trivial types, because
// longjmp() runs no destructors.
struct PngDecoder {
  png_structp png = nullptr;
  png_infop info = nullptr;
  std::span<const std::byte> rest;
  std::array<char, 128> text{};  // text of the first error
  bool header_read = false;
  std::uint32_t rows_to_come = 0;
  bool wrong_sum = false;  // zlib's checksum of the pixels is wrong
  bool too_large = false;
};

// Whether this is zlib's message for a wrong checksum of the pixels; libpng passes the message on.
bool tells_wrong_sum(const char* text) {
  return std::string_view(text).find("incorrect data check") != std::string_view::npos;
}

[[noreturn]] void png_leave(png_structp png, png_const_charp text) {
  auto* decoder = static_cast<PngDecoder*>(png_get_error_ptr(png));
  decoder->wrong_sum = decoder->wrong_sum || tells_wrong_sum(text);
  const std::size_t length = std::min(std::strlen(text), decoder->text.size() - 1);
  std::copy_n(text, length, decoder->text.begin());
  decoder->text[length] = '\0';
  png_longjmp(png, 1);
}

// Warnings concern data that the pixels do not need, except for a wrong zlib checksum after the last pixel.
void png_judge(png_structp png, png_const_charp text) {
  auto* decoder = static_cast<PngDecoder*>(png_get_error_ptr(png));
  decoder->wrong_sum = decoder->wrong_sum || tells_wrong_sum(text);
}

void png_take(png_structp png, png_bytep out, std::size_t count) {
  auto* decoder = static_cast<PngDecoder*>(png_get_io_ptr(png));
  if (decoder->rest.size() < count) png_error(png, "the file ends too early");
  std::memcpy(out, decoder->rest.data(), count);
  decoder->rest = decoder->rest.subspan(count);
}

// libpng calls this for each row that it decodes.
void png_count(png_structp png, png_row_infop, png_bytep) {
  --static_cast<PngDecoder*>(png_get_user_transform_ptr(png))->rows_to_come;
}

// The number of rows in all passes. An interlaced picture leaves out passes that have no pixel.
std::uint32_t rows_in(std::uint32_t width, std::uint32_t height, int passes) {
  struct Pass {
    std::uint32_t left, top, across, down;
  };
  if (passes == 1) return height;
  std::uint32_t rows = 0;
  for (const Pass& pass :
       {Pass{0, 0, 8, 8}, {4, 0, 8, 8}, {0, 4, 4, 8}, {2, 0, 4, 4}, {0, 2, 2, 4}, {1, 0, 2, 2}, Pass{0, 1, 1, 2}}) {
    if (width > pass.left && height > pass.top) rows += (height - pass.top + pass.down - 1) / pass.down;
  }
  return rows;
}

// A file that ends inside its last chunk of pixels may still have all pixels, because only zlib's checksum, the chunk's
// checksum and the end chunk follow them. libpng reads whole chunks only. So this function returns a copy of the file
// in which the chunk's length is the number of its bytes that are present. The result is empty if the file does not end
// inside such a chunk.
std::vector<std::byte> closed(std::span<const std::byte> bytes) {
  constexpr std::size_t kAround = 12;  // bytes of a chunk besides its data: length, name, checksum
  const auto word = [&](std::size_t at) {
    std::size_t value = 0;
    for (std::size_t i = 0; i < 4; ++i) value = value << 8 | std::to_integer<std::size_t>(bytes[at + i]);
    return value;
  };
  std::size_t at = 8;
  while (at + 8 <= bytes.size() && word(at) + kAround <= bytes.size() - at) at += word(at) + kAround;
  if (at + 8 > bytes.size() || std::memcmp(bytes.data() + at + 4, "IDAT", 4) != 0) return {};
  std::vector<std::byte> result(bytes.begin(), bytes.end());
  const std::size_t length = std::min(word(at), bytes.size() - at - 8);
  for (std::size_t i = 0; i < 4; ++i) result[at + i] = static_cast<std::byte>(length >> (24 - 8 * i));
  result.resize(at + length + kAround);
  return result;
}

// libpng calls this for every chunk except those of the pixels and the palette. None of these chunks changes a colour:
// Pillow, and so torchvision, takes the stored values, whatever these chunks say of gamma, profiles or transparency.
// Pillow refuses a file in which one of these chunks is too short for its kind, and so does this function.
int png_pass_over(png_structp png, png_unknown_chunkp chunk) {
  struct Least {
    const char* name;
    std::size_t bytes;
  };
  auto* decoder = static_cast<PngDecoder*>(png_get_user_chunk_ptr(png));
  if (decoder->header_read) return 1;  // the chunk comes after the pixels
  const int colour = png_get_color_type(png, decoder->info);
  const std::size_t transparency = colour == PNG_COLOR_TYPE_GRAY ? 2 : colour == PNG_COLOR_TYPE_RGB ? 6 : 0;
  for (const Least& least : {Least{"tRNS", transparency}, {"gAMA", 4}, {"sRGB", 1}, {"pHYs", 9}}) {
    if (std::memcmp(chunk->name, least.name, 4) == 0 && chunk->size < least.bytes) {
      png_chunk_error(png, "too short");
    }
  }
  return 1;
}

// Asks for the values that Pillow gives: the high byte of 16 bits, grey of fewer bits scaled to 0 to 255, the colours
// of the palette, no opacity. There is no gamma transform here, so stored values are not changed.
void ask_for_rgb(PngDecoder& decoder) {
  png_set_palette_to_rgb(decoder.png);
  png_set_expand_gray_1_2_4_to_8(decoder.png);
  png_set_strip_16(decoder.png);
  png_set_strip_alpha(decoder.png);
  png_set_gray_to_rgb(decoder.png);
}

// Reads everything before the pixels. Returns false if the picture is too large.
bool png_read_header(PngDecoder& decoder) {
  png_structp png = decoder.png;
  png_set_read_fn(png, &decoder, png_take);
  png_set_read_user_chunk_fn(png, &decoder, png_pass_over);
  png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);
  png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_NEVER, reinterpret_cast<png_const_bytep>("tRNS"), 1);
  png_set_crc_action(png, PNG_CRC_ERROR_QUIT, PNG_CRC_ERROR_QUIT);
  png_read_info(png, decoder.info);
  decoder.header_read = true;
  const std::uint32_t width = png_get_image_width(png, decoder.info);
  const std::uint32_t height = png_get_image_height(png, decoder.info);
  decoder.too_large = std::int64_t{width} * height > kMostPixels;
  return !decoder.too_large;
}

// Returns false if libpng left by the jump. No object with a destructor may be created after setjmp, because the jump
// would skip the destructor.
bool png_decode(PngDecoder& decoder, Picture* picture, std::vector<png_bytep>& rows) {
  png_structp png = decoder.png;
  if (setjmp(png_jmpbuf(png)) != 0) return false;
  if (!png_read_header(decoder) || picture == nullptr) return true;
  const std::uint32_t width = png_get_image_width(png, decoder.info);
  const std::uint32_t height = png_get_image_height(png, decoder.info);
  // zlib's checksum of the pixels is more reliable than the checksums of the chunks. A file in which only chunk
  // checksums are wrong is accepted.
  png_set_crc_action(png, PNG_CRC_QUIET_USE, PNG_CRC_QUIET_USE);
  ask_for_rgb(decoder);
  decoder.rows_to_come = rows_in(width, height, png_set_interlace_handling(png));
  png_set_read_user_transform_fn(png, png_count);
  png_set_user_transform_info(png, &decoder, 0, 0);
  png_read_update_info(png, decoder.info);
  const std::size_t row = std::size_t{3} * width;
  if (png_get_rowbytes(png, decoder.info) != row) png_error(png, "rows of another length than 3 bytes a pixel");
  picture->width = static_cast<int>(width);
  picture->height = static_cast<int>(height);
  picture->pixels.resize(row * height);
  rows.resize(height);
  for (std::size_t y = 0; y < height; ++y) rows[y] = picture->pixels.data() + row * y;
  png_read_image(png, rows.data());
  png_read_end(png, nullptr);  // reads zlib's checksum
  return true;
}

// Reads the file into `picture`, or only its header if `picture` is null.
Size png_read(std::span<const std::byte> bytes, const std::string& name, Picture* picture) {
  PngDecoder decoder;
  const std::vector<std::byte> mended = closed(bytes);
  decoder.rest = mended.empty() ? bytes : std::span<const std::byte>(mended);
  decoder.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &decoder, png_leave, png_judge);
  if (decoder.png != nullptr) decoder.info = png_create_info_struct(decoder.png);
  if (decoder.info == nullptr) {
    png_destroy_read_struct(&decoder.png, nullptr, nullptr);
    throw std::bad_alloc();
  }
  std::vector<png_bytep> rows;
  try {
    png_decode(decoder, picture, rows);
  } catch (...) {
    png_destroy_read_struct(&decoder.png, &decoder.info, nullptr);  // there was no memory for the pixels
    throw;
  }
  const std::uint32_t width = png_get_image_width(decoder.png, decoder.info);
  const std::uint32_t height = png_get_image_height(decoder.png, decoder.info);
  png_destroy_read_struct(&decoder.png, &decoder.info, nullptr);
  if (decoder.too_large)
    refuse_picture(name, fmt::format("{} x {} pixels", width, height), "at most 100 million pixels");
  // An error after the last row loses no pixels. Examples are a missing end, junk, or an odd chunk.
  if (!decoder.header_read || decoder.rows_to_come > 0 || decoder.wrong_sum) {
    refuse_picture(name, fmt::format("libpng: {}", decoder.wrong_sum ? "incorrect data check" : decoder.text.data()),
                   "a whole PNG file");
  }
  return {static_cast<int>(width), static_cast<int>(height)};
}

}  // namespace

Size size_of_png(std::span<const std::byte> bytes, const std::string& name) { return png_read(bytes, name, nullptr); }

void decode_png(std::span<const std::byte> bytes, const std::string& name, Picture& picture) {
  png_read(bytes, name, &picture);
}

}  // namespace reigen::image
