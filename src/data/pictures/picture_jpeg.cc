#include <fmt/format.h>

#include <algorithm>
#include <csetjmp>
#include <cstdio>
// The headers of libjpeg need <cstdio> before them.
#include <jpeglib.h>

#include <jerror.h>

#include "data/pictures/picture.h"

namespace reigen::data {

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

void choose_scale(jpeg_decompress_struct& info, std::size_t side) {
  const std::size_t shorter = std::min(info.image_width, info.image_height);
  info.scale_num = 1;
  info.scale_denom = 1;
  while (info.scale_denom < 8 && shorter / (2 * info.scale_denom) >= side) info.scale_denom *= 2;
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

// Reads lines until the picture is full. Returns false if the file ends before that.
bool read_lines(Decoder& decoder, Picture& picture, std::uint8_t* row) {
  jpeg_decompress_struct& info = decoder.info;
  while (info.output_scanline < info.output_height) {
    std::uint8_t* out = picture.pixels.data() + 3 * picture.width * info.output_scanline;
    JSAMPROW into = row != nullptr ? row : out;
    if (jpeg_read_scanlines(&info, &into, 1) == 0) return false;
    if (row != nullptr) cmyk_to_rgb(row, out, picture.width);
  }
  // If the end marker is missing and the last bytes are zeros, the pixels may come from blocks of the disk that were
  // never written.
  const bool made_of_zeros = zeros_before(decoder, kZerosOfALostEnd);
  return jpeg_finish_decompress(&info) != FALSE || !made_of_zeros;
}

// Returns false if libjpeg left by the jump. No object with a destructor may be created after setjmp, because the
// jump would skip the destructor.
bool decode(Decoder& decoder, std::span<const std::byte> bytes, std::size_t side, Picture& picture,
            std::vector<std::uint8_t>& row) {
  jpeg_decompress_struct& info = decoder.info;
  if (setjmp(decoder.escape) != 0) return false;
  jpeg_create_decompress(&info);
  info.client_data = &decoder;
  set_source(decoder, bytes);
  decoder.progress.progress_monitor = count_scans;
  info.progress = &decoder.progress;
  decoder.cut = jpeg_read_header(&info, TRUE) == JPEG_SUSPENDED;
  if (decoder.cut) return true;
  decoder.too_large = std::size_t{info.image_width} * info.image_height > kMostPixels;
  if (decoder.too_large) return true;
  const bool four = info.num_components == 4;
  info.out_color_space = four ? JCS_CMYK : JCS_RGB;
  info.dct_method = JDCT_ISLOW;  // gives the same bits with and without SIMD
  choose_scale(info, side);
  decoder.in_scans = true;
  decoder.cut = jpeg_start_decompress(&info) == FALSE;
  decoder.unfinished = lacks_scans(info);
  if (decoder.cut || decoder.unfinished) return true;
  picture.width = info.output_width;
  picture.height = info.output_height;
  picture.pixels.resize(3 * picture.width * picture.height);
  row.resize(four ? 4 * picture.width : 0);
  decoder.cut = !read_lines(decoder, picture, four ? row.data() : nullptr);
  return true;
}

}  // namespace

Picture decode_jpeg(std::span<const std::byte> bytes, const std::string& name, std::size_t side) {
  Decoder decoder;
  decoder.info.err = jpeg_std_error(&decoder.errors);
  decoder.info.client_data = &decoder;
  decoder.errors.error_exit = leave;
  decoder.errors.emit_message = judge;
  Picture picture;
  std::vector<std::uint8_t> row;
  bool whole = false;
  try {
    whole = decode(decoder, bytes, side, picture, row);
  } catch (...) {
    jpeg_destroy_decompress(&decoder.info);  // there was no memory for the pixels
    throw;
  }
  const std::string size = fmt::format("{} x {} pixels", decoder.info.image_width, decoder.info.image_height);
  jpeg_destroy_decompress(&decoder.info);
  if (decoder.too_large) refuse_picture(name, size, "at most 100 million pixels");
  if (decoder.too_many_scans) {
    refuse_picture(name, fmt::format("more than {} scans", kMostScans), "a JPEG file of fewer scans");
  }
  if (decoder.cut) refuse_picture(name, "the file ends before the picture does", "a whole JPEG file");
  if (decoder.unfinished) refuse_picture(name, "a progressive JPEG without its last scans", "a whole JPEG file");
  if (!whole) refuse_picture(name, fmt::format("libjpeg: {}", decoder.text), "a whole JPEG file");
  return picture;
}

}  // namespace reigen::data
