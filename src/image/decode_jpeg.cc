#include <fmt/format.h>

#include <algorithm>
#include <csetjmp>
#include <cstdio>
// The headers of libjpeg need <cstdio> before them.
#include <jpeglib.h>

#include <jerror.h>

#include "image/decoders.h"

namespace reigen::image {

namespace {

// A file without an end marker whose last bytes are this many zeros has lost its end. The number is larger than the 8
// bytes that the decoder reads ahead.
constexpr std::ptrdiff_t kZerosOfALostEnd = 24;
constexpr int kMostScans = 500;     // encoders write about 10 scans; each scan costs a pass over all blocks
constexpr int kMadeUpDetails = 10;  // first coefficients of a block, which libjpeg can estimate: the mean and 9 details

// The state that remains valid when libjpeg leaves by longjmp() after an error. It has only trivial types, because
// longjmp() runs no destructors.
struct Decoder {
  jpeg_decompress_struct info{};
  jpeg_error_mgr errors{};
  jpeg_source_mgr source{};
  jpeg_progress_mgr progress{};
  std::jmp_buf escape{};
  const std::uint8_t* begin = nullptr;  // beginning of the file
  char text[JMSG_LENGTH_MAX] = {};      // libjpeg's error message
  bool in_scans = false;
  bool cut = false;
  bool unfinished = false;
  bool too_large = false;
  bool too_many_scans = false;
};

Decoder* decoder_of(j_common_ptr info) { return static_cast<Decoder*>(info->client_data); }

[[noreturn]] void leave(j_common_ptr info) {
  Decoder* decoder = decoder_of(info);
  decoder->errors.format_message(info, decoder->text);
  std::longjmp(decoder->escape, 1);
}

// libjpeg calls this between parts of scans. A scan without data takes only a few bytes of the file, so a small file
// may have a million scans.
void count_scans(j_common_ptr info) {
  Decoder* decoder = decoder_of(info);
  decoder->too_many_scans = decoder->info.input_scan_number > kMostScans;
  if (decoder->too_many_scans) std::longjmp(decoder->escape, 1);
}

bool zeros_before(const Decoder& decoder, std::ptrdiff_t count) {
  const std::uint8_t* at = decoder.source.next_input_byte;
  return at - decoder.begin >= count && std::all_of(at - count, at, [](std::uint8_t byte) { return byte == 0; });
}

// Judges extra bytes before a marker. Between headers and after the last pixel they are harmless padding. Before a
// restart marker with pixels after it, they mean that the decoder has lost its position in the data, unless they are
// zeros.
bool lost_its_place(const Decoder& decoder) {
  const int* values = decoder.errors.msg_parm.i;
  const bool restart = values[1] >= JPEG_RST0 && values[1] <= JPEG_RST0 + 7;
  return restart && decoder.in_scans && decoder.info.input_iMCU_row < decoder.info.total_iMCU_rows &&
         !zeros_before(decoder, values[0]);
}

// libjpeg warns (level -1) of everything that breaks the standard, and continues with a guess. The file is damaged if
// the guess concerns pixels.
bool loses_pixels(const Decoder& decoder) {
  switch (decoder.errors.msg_code) {
    case JWRN_NOT_SEQUENTIAL:  // scan header bytes that sequential files do not need; Samsung's phones write them
    case JWRN_ADOBE_XFORM:     // an unknown colour transform, for which YCbCr is assumed
    case JWRN_JFIF_MAJOR:      // a later version of the format
      return false;
    case JWRN_EXTRANEOUS_DATA: return lost_its_place(decoder);
    default:  // bad codes, data that end before the pixels do, missing markers and scans
      return true;
  }
}

void judge(j_common_ptr info, int level) {
  if (level < 0 && loses_pixels(*decoder_of(info))) leave(info);
}

// ---- the file as libjpeg's source: at the end of the file libjpeg stops, so it cannot make up pixels or an end
// marker

void do_nothing(j_decompress_ptr) {}

boolean no_more(j_decompress_ptr) { return FALSE; }

void pass_over_bytes(j_decompress_ptr info, long count) {
  jpeg_source_mgr& source = *info->src;
  const std::size_t taken = std::min(static_cast<std::size_t>(std::max(count, 0L)), source.bytes_in_buffer);
  // A segment longer than the file leaves nothing to read, so the next request for a byte ends the reading.
  source.next_input_byte += taken;
  source.bytes_in_buffer -= taken;
}

void set_source(Decoder& decoder, std::span<const std::byte> bytes) {
  jpeg_source_mgr& source = decoder.source;
  source.init_source = do_nothing;
  source.fill_input_buffer = no_more;
  source.skip_input_data = pass_over_bytes;
  source.resync_to_restart = jpeg_resync_to_restart;
  source.term_source = do_nothing;
  source.next_input_byte = decoder.begin = reinterpret_cast<const std::uint8_t*>(bytes.data());
  source.bytes_in_buffer = bytes.size();
  decoder.info.src = &source;
}

// a·b / 255, rounded as Pillow rounds it.
unsigned product(unsigned a, unsigned b) {
  const unsigned sum = a * b + 128;
  return ((sum >> 8) + sum) >> 8;
}

// Pictures of four colours (CMYK) are read as Adobe writes them (255 means no ink), with or without Adobe's marker.
// Hardly any other program writes such pictures, and Pillow reads them in the same way.
void cmyk_to_rgb(const std::uint8_t* from, std::uint8_t* to, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i, from += 4, to += 3) {
    for (std::size_t c = 0; c < 3; ++c) {
      to[c] = static_cast<std::uint8_t>(from[3] - product(255U - from[c], from[3]));
    }
  }
}

// Whether scans are missing. A progressive file stores the details of a block in several scans. If one of the coarser
// details or its last bits are missing, libjpeg estimates it from neighbouring blocks, and each version of libjpeg
// estimates differently.
bool lacks_scans(const jpeg_decompress_struct& info) {
  if (info.coef_bits == nullptr) return false;  // not progressive
  for (int component = 0; component < info.num_components; ++component) {
    const int* bits = info.coef_bits[component];
    if (std::any_of(bits + 1, bits + kMadeUpDetails, [](int missing) { return missing != 0; })) return true;
  }
  return false;
}

// Reads the header. Returns false if the file ends in it or if the picture is too large.
bool read_header(Decoder& decoder, std::span<const std::byte> bytes) {
  jpeg_decompress_struct& info = decoder.info;
  jpeg_create_decompress(&info);
  info.client_data = &decoder;
  set_source(decoder, bytes);
  decoder.progress.progress_monitor = count_scans;
  info.progress = &decoder.progress;
  decoder.cut = jpeg_read_header(&info, TRUE) == JPEG_SUSPENDED;
  if (decoder.cut) return false;
  decoder.too_large = std::int64_t{info.image_width} * info.image_height > kMostPixels;
  return !decoder.too_large;
}

// Columns and rows beyond the wanted ones that are decoded too. libjpeg computes colours of pixels from those of their
// neighbours, and at the edge of what it decodes it treats the neighbours as missing.
struct Margin {
  int left = 0;   // columns before the box's first column
  int above = 0;  // rows
};

// Makes libjpeg compute only the columns around the box, and pass over the rows above it. A pixel's colour depends on
// the sample of colour beside its own one, and a sample covers as many pixels as the sampling factor says.
Margin narrow(jpeg_decompress_struct& info, const Wanted& wanted) {
  const Box& box = wanted.box;
  const auto whole = static_cast<int>(info.output_width);
  Margin margin;
  if (box.width < whole) {
    JDIMENSION left = static_cast<JDIMENSION>(std::max(box.left - info.max_h_samp_factor, 0));
    JDIMENSION width = static_cast<JDIMENSION>(std::min(box.left + box.width + info.max_h_samp_factor, whole)) - left;
    jpeg_crop_scanline(&info, &left, &width);  // moves `left` to the left, to a whole block
    margin.left = box.left - static_cast<int>(left);
  }
  // libjpeg-turbo 2.1 keeps the row of colours above by itself. Other versions get a row that they need not keep.
  const int block_rows = info.max_v_samp_factor * (DCTSIZE / wanted.divisor);  // libjpeg passes over whole blocks
  const int passed_over = std::max(box.top - info.max_v_samp_factor, 0) / block_rows * block_rows;
  if (passed_over > 0) jpeg_skip_scanlines(&info, static_cast<JDIMENSION>(passed_over));
  margin.above = box.top - passed_over;
  return margin;
}

// Reads the next row into the memory of a row of the strip. Returns false if the file ends before that.
bool read_row(Decoder& decoder, std::vector<std::uint8_t>& four, std::uint8_t* to) {
  JSAMPROW into = four.empty() ? to : four.data();
  if (jpeg_read_scanlines(&decoder.info, &into, 1) == 0) return false;
  if (!four.empty()) cmyk_to_rgb(four.data(), to, decoder.info.output_width);
  return true;
}

// Reads rows until the box is full. Returns false if the file ends before that.
bool read_rows(Decoder& decoder, const Box& box, const Margin& margin, JpegBuffers& buffers, const TakeStrip& take) {
  jpeg_decompress_struct& info = decoder.info;
  const std::size_t stride = 3 * std::size_t{info.output_width};
  const std::uint8_t* first = buffers.strip.data() + 3 * static_cast<std::size_t>(margin.left);
  for (int y = 0; y < margin.above; ++y) {
    if (!read_row(decoder, buffers.row, buffers.strip.data())) return false;
  }
  for (int y = 0; y < box.height; y += kStripRows) {
    const int rows = std::min(kStripRows, box.height - y);
    for (int i = 0; i < rows; ++i) {
      if (!read_row(decoder, buffers.row, buffers.strip.data() + stride * static_cast<std::size_t>(i))) return false;
    }
    take({.first = y,
          .rows = {first, {box.width, rows}, stride},
          .readable = 3 * static_cast<std::size_t>(box.width) + kStripPadding});
  }
  if (info.output_scanline < info.output_height) return true;
  // If the end marker is missing and the last bytes are zeros, the pixels may come from blocks of the disk that were
  // never written.
  const bool made_of_zeros = zeros_before(decoder, kZerosOfALostEnd);
  return jpeg_finish_decompress(&info) != FALSE || !made_of_zeros;
}

// Returns false if libjpeg left by the jump. No object with a destructor may be created after setjmp, because the
// jump would skip the destructor.
bool read_jpeg(Decoder& decoder, std::span<const std::byte> bytes, const Wanted& wanted, JpegBuffers& buffers,
               const TakeStrip& take) {
  jpeg_decompress_struct& info = decoder.info;
  if (setjmp(decoder.escape) != 0) return false;
  if (!read_header(decoder, bytes)) return true;
  const bool four = info.num_components == 4;
  info.out_color_space = four ? JCS_CMYK : JCS_RGB;
  info.dct_method = JDCT_ISLOW;  // gives the same bits with and without SIMD
  info.scale_num = 1;
  info.scale_denom = static_cast<unsigned>(wanted.divisor);
  decoder.in_scans = true;
  decoder.cut = jpeg_start_decompress(&info) == FALSE;
  decoder.unfinished = lacks_scans(info);
  if (decoder.cut || decoder.unfinished) return true;
  const Margin margin = narrow(info, wanted);
  buffers.row.resize(four ? std::size_t{4} * info.output_width : 0);
  buffers.strip.resize(std::size_t{3} * kStripRows * info.output_width + kStripPadding);
  decoder.cut = !read_rows(decoder, wanted.box, margin, buffers, take);
  return true;
}

bool read_jpeg_header(Decoder& decoder, std::span<const std::byte> bytes) {
  if (setjmp(decoder.escape) != 0) return false;
  read_header(decoder, bytes);
  return true;
}

void prepare(Decoder& decoder) {
  decoder.info.err = jpeg_std_error(&decoder.errors);
  decoder.info.client_data = &decoder;
  decoder.errors.error_exit = leave;
  decoder.errors.emit_message = judge;
}

// Throws if the picture could not be read. `whole`: libjpeg did not leave by the jump.
void refuse_damage(const Decoder& decoder, const std::string& name, bool whole) {
  if (decoder.too_large) {
    refuse_picture(name, fmt::format("{} x {} pixels", decoder.info.image_width, decoder.info.image_height),
                   "at most 100 million pixels");
  }
  if (decoder.too_many_scans) {
    refuse_picture(name, fmt::format("more than {} scans", kMostScans), "a JPEG file of fewer scans");
  }
  if (decoder.cut) refuse_picture(name, "the file ends before the picture does", "a whole JPEG file");
  if (decoder.unfinished) refuse_picture(name, "a progressive JPEG without its last scans", "a whole JPEG file");
  if (!whole) refuse_picture(name, fmt::format("libjpeg: {}", decoder.text), "a whole JPEG file");
}

}  // namespace

Size size_of_jpeg(std::span<const std::byte> bytes, const std::string& name) {
  Decoder decoder;
  prepare(decoder);
  const bool whole = read_jpeg_header(decoder, bytes);
  jpeg_destroy_decompress(&decoder.info);
  refuse_damage(decoder, name, whole);
  return {static_cast<int>(decoder.info.image_width), static_cast<int>(decoder.info.image_height)};
}

void decode_jpeg(std::span<const std::byte> bytes, const std::string& name, const Wanted& wanted, JpegBuffers& buffers,
                 const TakeStrip& take) {
  Decoder decoder;
  prepare(decoder);
  bool whole = false;
  try {
    whole = read_jpeg(decoder, bytes, wanted, buffers, take);
  } catch (...) {
    jpeg_destroy_decompress(&decoder.info);  // there was no memory for the pixels
    throw;
  }
  jpeg_destroy_decompress(&decoder.info);
  refuse_damage(decoder, name, whole);
}

}  // namespace reigen::image
