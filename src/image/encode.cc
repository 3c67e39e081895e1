#include "reigen/image/encode.h"

#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <new>
// The headers of libjpeg need <cstdio> before them.
#include <jpeglib.h>

#include "base/check.h"

namespace reigen::image {

namespace {

// The state that remains valid when libjpeg leaves by longjmp() after an error. It has only trivial types, because
// longjmp() runs no destructors.
struct Encoder {
  jpeg_compress_struct info{};
  jpeg_error_mgr errors{};
  std::jmp_buf escape{};
  unsigned char* memory = nullptr;
  unsigned long size = 0;
};

[[noreturn]] void leave_encoder(j_common_ptr info) {
  std::longjmp(static_cast<Encoder*>(info->client_data)->escape, 1);
}

// Returns false if libjpeg left by the jump. After the checks of encode_jpeg() only a lack of memory makes it leave.
bool write_jpeg(Encoder& encoder, const Picture& picture, int quality) {
  jpeg_compress_struct& info = encoder.info;
  if (setjmp(encoder.escape) != 0) return false;
  jpeg_create_compress(&info);
  info.client_data = &encoder;
  jpeg_mem_dest(&info, &encoder.memory, &encoder.size);
  info.image_width = static_cast<JDIMENSION>(picture.width);
  info.image_height = static_cast<JDIMENSION>(picture.height);
  info.input_components = 3;
  info.in_color_space = JCS_RGB;
  jpeg_set_defaults(&info);
  jpeg_set_quality(&info, quality, TRUE);
  info.dct_method = JDCT_ISLOW;  // gives the same bits with and without SIMD
  info.optimize_coding = TRUE;
  jpeg_start_compress(&info, TRUE);
  const std::size_t stride = 3 * static_cast<std::size_t>(picture.width);
  while (info.next_scanline < info.image_height) {
    auto* row = const_cast<JSAMPROW>(picture.pixels.data() + stride * info.next_scanline);  // libjpeg only reads it
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  return true;
}

}  // namespace

std::vector<std::byte> encode_jpeg(const Picture& picture, int quality) {
  constexpr int kMostOfJpeg = 65'500;
  REIGEN_CHECK(quality >= 1 && quality <= 100, "encode_jpeg: the quality must be in 1..100, got {}", quality);
  REIGEN_CHECK(
      picture.width >= 1 && picture.width <= kMostOfJpeg && picture.height >= 1 && picture.height <= kMostOfJpeg,
      "encode_jpeg: the sides of a picture must be in 1..{}, got {} x {}", kMostOfJpeg, picture.width, picture.height);
  const std::size_t wanted = 3 * static_cast<std::size_t>(picture.width) * static_cast<std::size_t>(picture.height);
  REIGEN_CHECK(picture.pixels.size() == wanted, "encode_jpeg: {} x {} pixels need {} bytes, got {}", picture.width,
               picture.height, wanted, picture.pixels.size());
  Encoder encoder;
  encoder.info.err = jpeg_std_error(&encoder.errors);
  encoder.info.client_data = &encoder;
  encoder.errors.error_exit = leave_encoder;
  const bool whole = write_jpeg(encoder, picture, quality);
  jpeg_destroy_compress(&encoder.info);
  const auto* begin = reinterpret_cast<const std::byte*>(encoder.memory);
  std::vector<std::byte> bytes;
  if (whole) bytes.assign(begin, begin + encoder.size);
  std::free(encoder.memory);
  if (!whole) throw std::bad_alloc();
  return bytes;
}

}  // namespace reigen::image
