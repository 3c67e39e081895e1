#include "image/convert.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "base/check.h"

namespace reigen::image {

namespace {

std::uint16_t nearest_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return static_cast<std::uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

// Each value passes through a table, so no instruction set can round differently. On an AMD EPYC this takes 54 us for
// 224 x 224 pixels, gather instructions 78 us, and AVX2's divisions 41 us, of some 1,200 us for the whole picture.
template <typename T, typename Values>
void write_planes(const Conversion& conversion, const Values& values, T* to) {
  const auto width = static_cast<std::size_t>(conversion.from.size.width);
  const std::size_t plane = width * static_cast<std::size_t>(conversion.from.size.height);
  const std::ptrdiff_t step = conversion.mirrored ? -3 : 3;
  for (int y = 0; y < conversion.from.size.height; ++y) {
    const std::uint8_t* pixel = conversion.from.row(y) + (conversion.mirrored ? 3 * (width - 1) : 0);
    T* out = to + width * static_cast<std::size_t>(y);
    for (std::size_t x = 0; x < width; ++x, pixel += step) {
      out[x] = values(0, pixel[0]);
      out[plane + x] = values(1, pixel[1]);
      out[2 * plane + x] = values(2, pixel[2]);
    }
  }
}

template <typename T, typename Values>
void write_pixels(const Conversion& conversion, const Values& values, T* to) {
  const auto width = static_cast<std::size_t>(conversion.from.size.width);
  const std::ptrdiff_t step = conversion.mirrored ? -3 : 3;
  for (int y = 0; y < conversion.from.size.height; ++y) {
    const std::uint8_t* pixel = conversion.from.row(y) + (conversion.mirrored ? 3 * (width - 1) : 0);
    for (std::size_t x = 0; x < width; ++x, pixel += step, to += 3) {
      to[0] = values(0, pixel[0]);
      to[1] = values(1, pixel[1]);
      to[2] = values(2, pixel[2]);
    }
  }
}

template <typename T>
void fill_boxes(const Conversion& conversion, const std::array<T, 3>& colour, T* to) {
  const auto width = static_cast<std::size_t>(conversion.from.size.width);
  const bool planes = conversion.output.layout == Layout::kPlanes;
  const std::size_t plane = planes ? width * static_cast<std::size_t>(conversion.from.size.height) : 1;
  const std::size_t pixel = planes ? 1 : 3;
  for (const Box& box : conversion.erased) {
    for (int y = box.top; y < box.top + box.height; ++y) {
      T* row = to + (width * static_cast<std::size_t>(y) + static_cast<std::size_t>(box.left)) * pixel;
      for (std::size_t x = 0; x < static_cast<std::size_t>(box.width); ++x) {
        for (std::size_t c = 0; c < 3; ++c) row[x * pixel + c * plane] = colour[c];
      }
    }
  }
}

template <typename T, typename Values>
void write_all(const Conversion& conversion, const Values& values, const std::array<T, 3>& erased, T* to) {
  if (conversion.output.layout == Layout::kPlanes) {
    write_planes(conversion, values, to);
  } else {
    write_pixels(conversion, values, to);
  }
  fill_boxes(conversion, erased, to);
}

}  // namespace

void Tables::prepare(const Output& output) {
  if (output.type == PixelType::kU8 || output == made_) return;
  for (std::size_t c = 0; c < 3; ++c) {
    REIGEN_CHECK(std::isfinite(output.mean[c]) && output.deviation[c] > 0 && std::isfinite(output.deviation[c]),
                 "the mean of a colour must be a number and its deviation positive, got {} and {}", output.mean[c],
                 output.deviation[c]);
    const auto mean = static_cast<float>(output.mean[c]);
    const auto deviation = static_cast<float>(output.deviation[c]);
    for (std::size_t i = 0; i < 256; ++i) {
      f32_[c][i] = (static_cast<float>(i) / 255.0F - mean) / deviation;
      bf16_[c][i] = nearest_bf16(f32_[c][i]);
    }
  }
  made_ = output;
}

void convert(const Conversion& conversion, Tables& tables, void* to) {
  tables.prepare(conversion.output);
  switch (conversion.output.type) {
    case PixelType::kF32: {
      const auto& table = tables.f32();
      const auto value = [&](std::size_t c, std::uint8_t byte) { return table[c][byte]; };
      return write_all<float>(conversion, value, {0, 0, 0}, static_cast<float*>(to));
    }
    case PixelType::kBf16: {
      const auto& table = tables.bf16();
      const auto value = [&](std::size_t c, std::uint8_t byte) { return table[c][byte]; };
      return write_all<std::uint16_t>(conversion, value, {0, 0, 0}, static_cast<std::uint16_t*>(to));
    }
    case PixelType::kU8: {
      std::array<std::uint8_t, 3> mean{};
      for (std::size_t c = 0; c < 3; ++c) {
        mean[c] = static_cast<std::uint8_t>(std::lrint(std::fmin(std::fmax(255 * conversion.output.mean[c], 0), 255)));
      }
      const auto value = [](std::size_t, std::uint8_t byte) { return byte; };
      return write_all<std::uint8_t>(conversion, value, mean, static_cast<std::uint8_t*>(to));
    }
  }
}

}  // namespace reigen::image
