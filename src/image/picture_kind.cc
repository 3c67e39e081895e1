#include "image/picture_kind.h"

#include <algorithm>
#include <cctype>
#include <string_view>

namespace reigen::image {

namespace {

using namespace std::string_view_literals;

constexpr const char* kConvert = "convert it, e.g. with Pillow: Image.open(path).convert('RGB').save(path + '.png')";
constexpr const char* kTakeOut = "unpack it, or take it out of the folder";
constexpr const char* kFetch = "fetch the file again, or remove it";
constexpr std::size_t kLooked = 1024;

struct Magic {
  std::size_t at;
  std::string_view bytes;
  const char* name;
  const char* fix = kConvert;
};

// The first match is taken, so a longer signature comes before a shorter one that it contains.
constexpr Magic kMagics[] = {
    {0, "GIF8"sv, "a GIF picture"},
    {4, "ftypavi"sv, "an AVIF picture"},
    {4, "ftyphei"sv, "a HEIC picture"},
    {4, "ftyphev"sv, "a HEIC picture"},
    {4, "ftypmif1"sv, "a HEIF picture"},
    {4, "ftypmsf1"sv, "a HEIF picture"},
    {4, "jP  \r\n\x87\n"sv, "a JPEG 2000 picture"},
    {0, "\xFF\x4F\xFF\x51"sv, "a JPEG 2000 picture"},
    {4, "JXL \r\n\x87\n"sv, "a JPEG XL picture"},
    {0, "\xFF\x0A"sv, "a JPEG XL picture"},
    {0, "II*\0"sv, "a TIFF picture, or a camera's raw file"},
    {0, "MM\0*"sv, "a TIFF picture, or a camera's raw file"},
    {0, "II+\0"sv, "a TIFF picture"},
    {0, "MM\0+"sv, "a TIFF picture"},
    {0, "8BPS"sv, "a Photoshop file"},
    {0, "gimp xcf"sv, "a GIMP file"},
    {0, "qoif"sv, "a QOI picture"},
    {0, "DDS "sv, "a DDS texture"},
    {0, "\x76\x2F\x31\x01"sv, "an OpenEXR picture"},
    {0, "#?RADIANCE"sv, "a Radiance HDR picture"},
    {0, "SIMPLE  ="sv, "a FITS file"},
    {128, "DICM"sv, "a DICOM file"},
    {0, "\0\0\1\0"sv, "an icon (ICO)"},
    {0, "\x89HDF"sv, "an HDF5 file"},
    {0, "\x93NUMPY"sv, "an array of NumPy"},
    {0, "\x8AMNG"sv, "an MNG animation"},
    {0, "%PDF"sv, "a PDF document"},
    {4, "ftyp"sv, "a video (MP4)"},
    {0, "PK\3\4"sv, "a zip archive", kTakeOut},
    {0, "\x1F\x8B"sv, "a gzip archive", kTakeOut},
    {0, "\0\5\x16\7"sv, "the side file of a Mac (its name begins with ._)", "remove it"},
    {0, "version https://git-lfs"sv, "a pointer of Git LFS", "fetch what it points to: git lfs pull"},
    {0, "/annex/objects/"sv, "a pointer of git-annex", "fetch what it points to: git annex get"},
    {0, "BM"sv, "a BMP picture"},
};

bool has(std::string_view text, const Magic& magic) {
  return text.size() > magic.at && text.substr(magic.at).starts_with(magic.bytes);
}

// A WebP file begins with "RIFF", its size, and "WEBP".
bool is_webp(std::string_view text) {
  return text.starts_with("RIFF") && text.substr(4).substr(0, 8).ends_with("WEBP");
}

// A file of PBM, PGM, PPM or PAM begins with "P1" to "P7", and then a space.
bool is_netpbm(std::string_view text) {
  return text.size() > 2 && text[0] == 'P' && text[1] >= '1' && text[1] <= '7' &&
         std::isspace(static_cast<unsigned char>(text[2])) != 0;
}

bool is_text(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte >= 0x20 || std::isspace(byte) != 0;
  });
}

PictureKind kind_of_text(std::string_view text) {
  std::string low(text);
  std::transform(low.begin(), low.end(), low.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (low.find("<svg") != std::string::npos) return {"an SVG drawing", kConvert};
  if (low.find("<!doctype html") != std::string::npos || low.find("<html") != std::string::npos) {
    return {"a web page", "fetch the picture itself: a server sent a page in its place"};
  }
  return {"a text", kFetch};
}

// Detects a PNG file that was copied in text mode, which changes \r\n to \n or back.
bool was_a_png(std::string_view text) { return text.starts_with("\x89PNG") || text.starts_with("PNG\r\n"); }

}  // namespace

PictureKind kind_of_picture(std::span<const std::byte> bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), std::min(bytes.size(), kLooked));
  if (text.empty()) return {"an empty file", kFetch};
  if (is_webp(text)) return {"a WebP picture", kConvert};
  for (const Magic& magic : kMagics) {
    if (has(text, magic)) return {magic.name, magic.fix};
  }
  if (is_netpbm(text)) return {"a netpbm picture (PPM)", kConvert};
  if (was_a_png(text)) return {"a PNG file whose line ends were changed", "fetch it again, in binary mode"};
  if (text.find_first_not_of('\0') == std::string_view::npos) return {"a file of zeros", kFetch};
  if (is_text(text)) return kind_of_text(text);
  return {"a file of another kind", kFetch};
}

}  // namespace reigen::image
