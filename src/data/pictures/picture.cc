#include "data/pictures/picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "data/pictures/picture_kind.h"
#include "format/input_file.h"
#include "reigen/base/bytes.h"
#include "reigen/base/error.h"

namespace reigen::data {

namespace {

constexpr std::uint64_t kMostBytes = 256 * kMiB;

bool begins_with(std::span<const std::byte> bytes, std::string_view magic) {
  return bytes.size() >= magic.size() && std::memcmp(bytes.data(), magic.data(), magic.size()) == 0;
}

// The weights of pixels [first, first + factors.size()) of a source line for one pixel of the result line.
struct Weight {
  std::size_t first = 0;
  std::vector<double> factors;
};

std::vector<Weight> weights(std::size_t from, std::size_t to) {
  const double scale = static_cast<double>(from) / static_cast<double>(to);
  // If the line shrinks, the weight of a source pixel is the fraction of the result pixel that the source pixel covers.
  // If the line grows, the two nearest source pixels are interpolated.
  std::vector<Weight> result(to);
  for (std::size_t i = 0; i < to; ++i) {
    Weight& weight = result[i];
    if (from >= to) {
      const double begin = static_cast<double>(i) * scale;
      const double end = std::min(begin + scale, static_cast<double>(from));
      weight.first = static_cast<std::size_t>(begin);
      for (std::size_t at = weight.first; at < from && static_cast<double>(at) < end; ++at) {
        const double low = std::max(begin, static_cast<double>(at));
        const double high = std::min(end, static_cast<double>(at + 1));
        weight.factors.push_back((high - low) / (end - begin));
      }
    } else {
      const double middle =
          std::clamp((static_cast<double>(i) + 0.5) * scale - 0.5, 0.0, static_cast<double>(from - 1));
      weight.first = std::min(static_cast<std::size_t>(middle), from - 1);
      const double next = middle - static_cast<double>(weight.first);
      weight.factors.push_back(1 - next);
      if (weight.first + 1 < from) weight.factors.push_back(next);
    }
  }
  return result;
}

}  // namespace

void refuse_picture(const std::string& name, const std::string& got, const std::string& expected,
                    const std::string& fix) {
  throw DataError(Report{
      .what = fmt::format("cannot decode the picture '{}'", name), .got = got, .expected = expected, .fix = fix});
}

Picture read_picture(const std::filesystem::path& path, std::size_t side) {
  const format::InputFile file(path);
  if (file.size() > kMostBytes) refuse_picture(file.path(), format_bytes(file.size()), "at most 256 MiB");
  std::vector<std::byte> bytes(file.size());
  bytes.resize(file.read_at(0, bytes));
  if (begins_with(bytes, "\xFF\xD8\xFF")) return decode_jpeg(bytes, file.path(), side);
  if (begins_with(bytes, "\x89PNG\r\n\x1A\n")) return decode_png(bytes, file.path());
  const PictureKind kind = kind_of_picture(bytes);
  refuse_picture(file.path(), kind.name, "a JPEG or PNG file", kind.fix);
}

void square(const Picture& picture, std::size_t side, std::span<std::uint8_t> out) {
  const std::size_t length = std::min(picture.width, picture.height);
  const std::size_t left = (picture.width - length) / 2;
  const std::size_t top = (picture.height - length) / 2;
  const auto row = [&](std::size_t y) { return picture.pixels.data() + 3 * ((top + y) * picture.width + left); };
  if (length == side) {
    for (std::size_t y = 0; y < side; ++y) std::memcpy(out.data() + 3 * side * y, row(y), 3 * side);
    return;
  }
  const std::vector<Weight> taps = weights(length, side);
  std::vector<double> narrow(length * side * 3);  // all `length` rows, each narrowed to `side` pixels
  for (std::size_t y = 0; y < length; ++y) {
    for (std::size_t x = 0; x < side; ++x) {
      for (std::size_t k = 0; k < taps[x].factors.size(); ++k) {
        const std::uint8_t* pixel = row(y) + 3 * (taps[x].first + k);
        for (std::size_t c = 0; c < 3; ++c) narrow[3 * (y * side + x) + c] += taps[x].factors[k] * pixel[c];
      }
    }
  }
  for (std::size_t y = 0; y < side; ++y) {
    for (std::size_t x = 0; x < 3 * side; ++x) {
      double sum = 0.5;
      for (std::size_t k = 0; k < taps[y].factors.size(); ++k) {
        sum += taps[y].factors[k] * narrow[3 * side * (taps[y].first + k) + x];
      }
      out[3 * side * y + x] = static_cast<std::uint8_t>(std::clamp(sum, 0.0, 255.0));
    }
  }
}

}  // namespace reigen::data
