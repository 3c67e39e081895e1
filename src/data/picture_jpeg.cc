#include <fmt/format.h>

#include <algorithm>
#include <csetjmp>
#include <cstdio>
// These need <cstdio> before them.
#include <jpeglib.h>

#include <jerror.h>

#include "data/picture.h"

namespace reigen::data {

namespace {

// Where libjpeg's errors and warnings go. It has no way back out of an error but a jump.
struct Problem {
  jpeg_error_mgr manager{};  // first: libjpeg hands out its address
  std::jmp_buf escape{};
  char text[JMSG_LENGTH_MAX] = {};
};

Problem* problem_of(j_common_ptr info) { return reinterpret_cast<Problem*>(info->err); }

[[noreturn]] void leave(j_common_ptr info) {
  Problem* problem = problem_of(info);
  problem->manager.format_message(info, problem->text);
  std::longjmp(problem->escape, 1);
}

// Level -1 says that data are damaged, and libjpeg goes on with what it makes up. Bytes between two parts and odd
// version numbers are common in whole files.
void judge(j_common_ptr info, int level) {
  const int code = info->err->msg_code;
  if (level >= 0 || code == JWRN_EXTRANEOUS_DATA || code == JWRN_ADOBE_XFORM || code == JWRN_JFIF_MAJOR) return;
  leave(info);
}

// What lives across the jump: trivial types only, and the pixels that the caller owns.
struct Decoder {
  jpeg_decompress_struct info{};
  Problem problem;
  bool too_large = false;
};

void choose_scale(jpeg_decompress_struct& info, std::size_t side) {
  const std::size_t shorter = std::min(info.image_width, info.image_height);
  info.scale_num = 1;
  info.scale_denom = 1;
  while (info.scale_denom < 8 && shorter / (2 * info.scale_denom) >= side) info.scale_denom *= 2;
}

// Adobe writes CMYK inverted, and nobody else writes it.
void cmyk_to_rgb(const std::uint8_t* from, std::uint8_t* to, std::size_t count, bool inverted) {
  for (std::size_t i = 0; i < count; ++i, from += 4, to += 3) {
    for (std::size_t c = 0; c < 3; ++c) {
      const unsigned ink = inverted ? from[c] : 255U - from[c];
      const unsigned black = inverted ? from[3] : 255U - from[3];
      to[c] = static_cast<std::uint8_t>(ink * black / 255);
    }
  }
}

// False when libjpeg left by the jump; no object with a destructor is born between setjmp and there.
bool decode(Decoder& decoder, std::span<const std::byte> bytes, std::size_t side, Picture& picture,
            std::vector<std::uint8_t>& row) {
  jpeg_decompress_struct& info = decoder.info;
  if (setjmp(decoder.problem.escape) != 0) return false;
  jpeg_create_decompress(&info);
  jpeg_mem_src(&info, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
  jpeg_read_header(&info, TRUE);
  decoder.too_large = std::size_t{info.image_width} * info.image_height > kMostPixels;
  if (decoder.too_large) return true;
  const bool four = info.jpeg_color_space == JCS_CMYK || info.jpeg_color_space == JCS_YCCK;
  info.out_color_space = four ? JCS_CMYK : JCS_RGB;
  info.dct_method = JDCT_ISLOW;  // the same bits with and without SIMD
  choose_scale(info, side);
  jpeg_start_decompress(&info);
  picture.width = info.output_width;
  picture.height = info.output_height;
  picture.pixels.resize(3 * picture.width * picture.height);
  row.resize(four ? 4 * picture.width : 0);
  while (info.output_scanline < info.output_height) {
    std::uint8_t* out = picture.pixels.data() + 3 * picture.width * info.output_scanline;
    JSAMPROW into = four ? row.data() : out;
    jpeg_read_scanlines(&info, &into, 1);
    if (four) cmyk_to_rgb(row.data(), out, picture.width, info.saw_Adobe_marker != FALSE);
  }
  jpeg_finish_decompress(&info);
  return true;
}

}  // namespace

Picture decode_jpeg(std::span<const std::byte> bytes, const std::string& name, std::size_t side) {
  Decoder decoder;
  decoder.info.err = jpeg_std_error(&decoder.problem.manager);
  decoder.problem.manager.error_exit = leave;
  decoder.problem.manager.emit_message = judge;
  Picture picture;
  std::vector<std::uint8_t> row;
  bool whole = false;
  try {
    whole = decode(decoder, bytes, side, picture, row);
  } catch (...) {
    jpeg_destroy_decompress(&decoder.info);  // no memory for the pixels
    throw;
  }
  const std::string size = fmt::format("{} x {} pixels", decoder.info.image_width, decoder.info.image_height);
  jpeg_destroy_decompress(&decoder.info);
  if (decoder.too_large) refuse_picture(name, size, "at most 100 million pixels");
  if (!whole) refuse_picture(name, fmt::format("libjpeg: {}", decoder.problem.text), "a whole JPEG file");
  return picture;
}

}  // namespace reigen::data
