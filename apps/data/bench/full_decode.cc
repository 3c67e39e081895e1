#include "data/bench/full_decode.h"

#include <csetjmp>
#include <cstdio>
// The headers of libjpeg need <cstdio> before them.
#include <jpeglib.h>

#include "container/sample.h"
#include "reigen/image/decode.h"

namespace reigen::apps::data {

namespace {

// Only trivial types, because libjpeg leaves by longjmp() after an error.
struct WholeFile {
  jpeg_decompress_struct info{};
  jpeg_error_mgr errors{};
  std::jmp_buf escape{};
  char text[JMSG_LENGTH_MAX] = {};
};

[[noreturn]] void leave_whole_file(j_common_ptr info) {
  auto* file = static_cast<WholeFile*>(info->client_data);
  file->errors.format_message(info, file->text);
  std::longjmp(file->escape, 1);
}

void print_nothing(j_common_ptr) {}

// Returns false if libjpeg left by the jump. No object with a destructor may be created after setjmp.
bool read_whole_file(WholeFile& file, std::span<const std::byte> bytes, std::vector<std::uint8_t>& pixels) {
  jpeg_decompress_struct& info = file.info;
  if (setjmp(file.escape) != 0) return false;
  jpeg_create_decompress(&info);
  info.client_data = &file;
  jpeg_mem_src(&info, reinterpret_cast<const unsigned char*>(bytes.data()), static_cast<unsigned long>(bytes.size()));
  jpeg_read_header(&info, TRUE);
  if (info.num_components != 4) info.out_color_space = JCS_RGB;  // CMYK cannot become RGB here
  jpeg_start_decompress(&info);
  const std::size_t row = std::size_t{info.output_width} * static_cast<std::size_t>(info.output_components);
  if (pixels.size() < row * info.output_height) pixels.resize(row * info.output_height);
  while (info.output_scanline < info.output_height) {
    JSAMPROW into = pixels.data() + row * info.output_scanline;
    jpeg_read_scanlines(&info, &into, 1);
  }
  jpeg_finish_decompress(&info);
  return true;
}

}  // namespace

void FullDecode::operator()(std::span<const std::byte> file, const std::string& where) {
  constexpr auto kFirstOfJpeg = std::byte{0xff};
  if (file.empty() || file[0] != kFirstOfJpeg) {
    image::decode(file, where);
    return;
  }
  WholeFile whole;
  whole.info.err = jpeg_std_error(&whole.errors);
  whole.info.client_data = &whole;
  whole.errors.error_exit = leave_whole_file;
  whole.errors.output_message = print_nothing;
  const bool is_read = read_whole_file(whole, file, pixels_);
  jpeg_destroy_decompress(&whole.info);
  if (!is_read) container::fail_damaged(where, whole.text, "a whole JPEG file");
}

}  // namespace reigen::apps::data
