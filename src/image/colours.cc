#include "image/colours.h"

#include <algorithm>
#include <array>

namespace reigen::image {

namespace {

// Pillow's grey of a colour (ITU-R 601-2), in 16 bits.
std::uint8_t grey_of(const std::uint8_t* pixel) {
  return static_cast<std::uint8_t>((pixel[0] * 19595U + pixel[1] * 38470U + pixel[2] * 7471U + 0x8000U) >> 16);
}

// Image.blend(): from `base` (amount 0) over `value` (amount 1) further on. Values are cut to integers, not rounded.
std::uint8_t blend(int base, int value, float amount) {
  const float mixed = static_cast<float>(base) + amount * static_cast<float>(value - base);
  return static_cast<std::uint8_t>(std::min(std::max(mixed, 0.0F), 255.0F));
}

template <typename Change>
void for_each_pixel(const Pixels& pixels, const Change& change) {
  for (int y = 0; y < pixels.size.height; ++y) {
    std::uint8_t* pixel = pixels.row(y);
    for (int x = 0; x < pixels.size.width; ++x, pixel += 3) change(pixel);
  }
}

// Blends every value with the same base, by a table.
void blend_with(const Pixels& pixels, int base, float amount) {
  std::array<std::uint8_t, 256> table{};
  for (int i = 0; i < 256; ++i) table[static_cast<std::size_t>(i)] = blend(base, i, amount);
  for_each_pixel(pixels, [&](std::uint8_t* pixel) {
    for (int c = 0; c < 3; ++c) pixel[c] = table[pixel[c]];
  });
}

int mean_grey(const Pixels& pixels) {
  std::int64_t sum = 0;
  for_each_pixel(pixels, [&](const std::uint8_t* pixel) { sum += grey_of(pixel); });
  const double count = static_cast<double>(pixels.size.width) * pixels.size.height;
  return static_cast<int>(static_cast<double>(sum) / count + 0.5);
}

// round() of a value in 0..255, in a form that the compiler makes fast.
std::uint8_t rounded_byte(double value) {
  const int whole = static_cast<int>(value);
  return static_cast<std::uint8_t>(value - whole >= 0.5 ? whole + 1 : whole);
}

struct HueSaturationValue {
  std::uint8_t hue, saturation, value;
};

// Image.convert("HSV") of Pillow, with its mix of float and double.
HueSaturationValue hsv_of(const std::uint8_t* pixel) {
  const int red = pixel[0];
  const int green = pixel[1];
  const int blue = pixel[2];
  const int most = std::max({red, green, blue});
  const int least = std::min({red, green, blue});
  if (most == least) return {0, 0, static_cast<std::uint8_t>(most)};
  const auto range = static_cast<float>(most - least);
  const float saturation = range / static_cast<float>(most);
  const float from_red = static_cast<float>(most - red) / range;
  const float from_green = static_cast<float>(most - green) / range;
  const float from_blue = static_cast<float>(most - blue) / range;
  float hue = from_blue - from_green;
  if (red != most) {
    hue = green == most ? static_cast<float>(2.0 + static_cast<double>(from_red) - static_cast<double>(from_blue))
                        : static_cast<float>(4.0 + static_cast<double>(from_green) - static_cast<double>(from_red));
  }
  const double turns = static_cast<double>(hue) / 6.0 + 1.0;  // 5/6 to 11/6, of which Pillow takes fmod(turns, 1)
  hue = static_cast<float>(turns < 1.0 ? turns : turns - 1.0);
  return {static_cast<std::uint8_t>(static_cast<double>(hue) * 255.0),
          static_cast<std::uint8_t>(static_cast<double>(saturation) * 255.0), static_cast<std::uint8_t>(most)};
}

// Image.convert("RGB") of Pillow.
void write_rgb(const HueSaturationValue& colour, std::uint8_t* pixel) {
  const std::uint8_t v = colour.value;
  if (colour.saturation == 0) {
    std::fill_n(pixel, 3, v);
    return;
  }
  const double sixths = static_cast<double>(static_cast<float>(colour.hue)) * 6.0 / 255.0;
  const int sector = static_cast<int>(sixths);
  const auto rest = static_cast<double>(static_cast<float>(sixths - static_cast<double>(static_cast<float>(sector))));
  const auto saturation = static_cast<double>(static_cast<float>(static_cast<double>(colour.saturation) / 255.0));
  const auto part = [&](double away) { return rounded_byte(v * (1.0 - away)); };
  const std::uint8_t p = part(saturation);
  const std::uint8_t q = part(saturation * rest);
  const std::uint8_t t = part(saturation * (1.0 - rest));
  const std::uint8_t colours[6][3] = {{v, t, p}, {q, v, p}, {p, v, t}, {p, q, v}, {t, p, v}, {v, p, q}};
  std::copy_n(colours[sector % 6], 3, pixel);
}

void turn_hue(const Pixels& pixels, double amount) {
  // torchvision adds the hue as a byte, which wraps around.
  const auto turn = static_cast<unsigned>(static_cast<int>(amount * 255));
  for_each_pixel(pixels, [&](std::uint8_t* pixel) {
    HueSaturationValue colour = hsv_of(pixel);
    colour.hue = static_cast<std::uint8_t>(colour.hue + turn);
    write_rgb(colour, pixel);
  });
}

void apply(const Colours::Change& change, const Pixels& pixels) {
  const auto amount = static_cast<float>(change.amount);
  switch (change.what) {
    case Adjustment::kBrightness: return blend_with(pixels, 0, amount);
    case Adjustment::kContrast: return blend_with(pixels, mean_grey(pixels), amount);
    case Adjustment::kSaturation:
      return for_each_pixel(pixels, [&](std::uint8_t* pixel) {
        const int grey = grey_of(pixel);
        for (int c = 0; c < 3; ++c) pixel[c] = blend(grey, pixel[c], amount);
      });
    case Adjustment::kHue: return turn_hue(pixels, change.amount);
  }
}

}  // namespace

void mirror_rows(const Pixels& pixels) {
  for (int y = 0; y < pixels.size.height; ++y) {
    std::uint8_t* left = pixels.row(y);
    std::uint8_t* right = left + 3 * static_cast<std::ptrdiff_t>(pixels.size.width - 1);
    for (; left < right; left += 3, right -= 3) std::swap_ranges(left, left + 3, right);
  }
}

void change_colours(const Colours& colours, const Pixels& pixels) {
  for (int i = 0; i < colours.count; ++i) apply(colours.changes[static_cast<std::size_t>(i)], pixels);
}

}  // namespace reigen::image
