#include "data/pictures/picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "format/input_file.h"
#include "reigen/base/bytes.h"
#include "reigen/base/error.h"
#include "reigen/image/decode.h"

namespace reigen::data {

namespace {

constexpr std::uint64_t kMostBytes = 256 * kMiB;

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

image::Picture read_picture(const std::filesystem::path& path, int side) {
  const format::InputFile file(path);
  if (file.size() > kMostBytes) {
    throw DataError(Report{.what = fmt::format("cannot decode the picture '{}'", file.path()),
                           .got = format_bytes(file.size()),
                           .expected = "at most 256 MiB",
                           .fix = "fetch the file again, or remove it"});
  }
  std::vector<std::byte> bytes(file.size());
  bytes.resize(file.read_at(0, bytes));
  return image::decode(bytes, file.path(), {.scale_to = {side, side}});
}

void square(const image::Picture& picture, std::size_t side, std::span<std::uint8_t> out) {
  const auto width = static_cast<std::size_t>(picture.width);
  const auto height = static_cast<std::size_t>(picture.height);
  const std::size_t length = std::min(width, height);
  const std::size_t left = (width - length) / 2;
  const std::size_t top = (height - length) / 2;
  const auto row = [&](std::size_t y) { return picture.pixels.data() + 3 * ((top + y) * width + left); };
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
