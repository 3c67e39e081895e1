#include "reigen/image/operations.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/check.h"
#include "reigen/base/error.h"
#include "reigen/image/resize.h"

namespace reigen::image {

namespace {

constexpr int kTries = 10;
constexpr int kMostLength = 65'535;

// Python's round(): halves go to the even neighbour.
int nearest(double value) { return static_cast<int>(std::lrint(value)); }

void require_length(int length, const char* what) {
  REIGEN_CHECK(length > 0 && length <= kMostLength, "{} must be in 1..{} pixels, got {}", what, kMostLength, length);
}

void require_range(Range range, const char* what) {
  REIGEN_CHECK(range.low > 0 && range.low <= range.high && std::isfinite(range.high),
               "the {} must be positive numbers, the smaller first, got {} and {}", what, range.low, range.high);
}

// A box with a random part of the area and a random ratio. The first side is sqrt(area · ratio).
struct Sides {
  int first;
  int second;
};
Sides random_sides(double area, Range scale, Range ratio, Random& random) {
  const double part = area * random.uniform(scale.low, scale.high);
  const double sides = std::exp(random.uniform(std::log(ratio.low), std::log(ratio.high)));
  return {nearest(std::sqrt(part * sides)), nearest(std::sqrt(part / sides))};
}

// Uniform in 0..most.
int place(int most, Random& random) { return static_cast<int>(random.below(static_cast<std::uint32_t>(most) + 1)); }

Box middle_box(Size picture, Range ratio) {
  const double own = static_cast<double>(picture.width) / picture.height;
  Size size = picture;
  if (own < ratio.low) size.height = std::max(nearest(picture.width / ratio.low), 1);
  if (own > ratio.high) size.width = std::max(nearest(picture.height * ratio.high), 1);
  return {(picture.width - size.width) / 2, (picture.height - size.height) / 2, size.width, size.height};
}

// Where a box of this length begins in the middle of a line. If the line is shorter, the box begins before it.
int middle_place(int length, int box) { return box > length ? -((box - length) / 2) : nearest((length - box) / 2.0); }

}  // namespace

RandomResizedCrop random_resized_crop(int size, const RandomResizedCropOptions& options) {
  require_length(size, "random_resized_crop: the size");
  require_range(options.scale, "scales of random_resized_crop");
  require_range(options.ratio, "ratios of random_resized_crop");
  return {size, options};
}

Box RandomResizedCrop::box(Size picture, Random& random) const {
  const double area = static_cast<double>(picture.width) * picture.height;
  for (int i = 0; i < kTries; ++i) {
    const auto [width, height] = random_sides(area, options.scale, options.ratio, random);
    if (width < 1 || height < 1 || width > picture.width || height > picture.height) continue;
    const int top = place(picture.height - height, random);
    const int left = place(picture.width - width, random);
    return {left, top, width, height};
  }
  return middle_box(picture, options.ratio);
}

void RandomResizedCrop::operator()(Draft& draft, Random& random) const {
  draft.crop(box(draft.size(), random));
  draft.resize({size, size});
}

Resize resize(int width, int height) {
  require_length(width, "resize: the width");
  require_length(height, "resize: the height");
  return {{width, height}};
}

void Resize::operator()(Draft& draft, Random&) const { draft.resize(size); }

ResizeShorter resize_shorter(int length) {
  require_length(length, "resize_shorter: the length");
  return {length};
}

void ResizeShorter::operator()(Draft& draft, Random&) const {
  const Size size = draft.size();
  const double longer =
      static_cast<double>(length) * std::max(size.width, size.height) / std::min(size.width, size.height);
  if (longer > kMostLength) {
    throw DataError(
        Report{.what = fmt::format("the picture '{}' is too narrow to be resized", draft.name()),
               .got = fmt::format("{} x {} pixels, whose shorter side shall have {}", size.width, size.height, length),
               .expected = fmt::format("a longer side of at most {} pixels after that", kMostLength)});
  }
  draft.resize(with_shorter_side(size, length));
}

CenterCrop center_crop(int size) {
  require_length(size, "center_crop: the size");
  return {size};
}

void CenterCrop::operator()(Draft& draft, Random&) const {
  const Size picture = draft.size();
  draft.crop({middle_place(picture.width, size), middle_place(picture.height, size), size, size});
}

PadAndCrop pad_and_crop(int size, int padding) {
  require_length(size, "pad_and_crop: the size");
  REIGEN_CHECK(padding >= 0 && padding <= kMostLength, "pad_and_crop: the padding must be in 0..{}, got {}",
               kMostLength, padding);
  return {size, padding};
}

void PadAndCrop::operator()(Draft& draft, Random& random) const {
  const Size picture = draft.size();
  const int across = picture.width + 2 * padding - size;
  const int down = picture.height + 2 * padding - size;
  REIGEN_CHECK(across >= 0 && down >= 0, "pad_and_crop: '{}' has {} x {} pixels and edges of {}, smaller than {} x {}",
               draft.name(), picture.width, picture.height, padding, size, size);
  const int top = place(down, random) - padding;
  const int left = place(across, random) - padding;
  draft.crop({left, top, size, size});
}

RandomFlip random_flip(double probability) {
  REIGEN_CHECK(probability >= 0 && probability <= 1, "random_flip: the probability must be in 0..1, got {}",
               probability);
  return {probability};
}

void RandomFlip::operator()(Draft& draft, Random& random) const {
  if (random.chance(probability)) draft.mirror();
}

ColourJitter colour_jitter(const ColourJitterOptions& options) {
  for (const double amount : {options.brightness, options.contrast, options.saturation}) {
    REIGEN_CHECK(amount >= 0 && std::isfinite(amount), "colour_jitter: an amount must be at least 0, got {}", amount);
  }
  REIGEN_CHECK(options.hue >= 0 && options.hue <= 0.5, "colour_jitter: the hue must be in 0..0.5, got {}", options.hue);
  return {options};
}

void ColourJitter::operator()(Draft& draft, Random& random) const {
  constexpr std::array kAll = {Adjustment::kBrightness, Adjustment::kContrast, Adjustment::kSaturation,
                               Adjustment::kHue};
  const std::array<double, 4> strengths = {options.brightness, options.contrast, options.saturation, options.hue};
  std::array<std::size_t, 4> order = {0, 1, 2, 3};
  for (std::size_t i = 3; i > 0; --i) std::swap(order[i], order[random.below(static_cast<std::uint32_t>(i) + 1)]);
  Colours colours;
  for (const std::size_t i : order) {
    const double strength = strengths[i];
    if (strength == 0) continue;
    const bool hue = kAll[i] == Adjustment::kHue;
    const double amount =
        hue ? random.uniform(-strength, strength) : random.uniform(std::max(0.0, 1 - strength), 1 + strength);
    colours.changes[static_cast<std::size_t>(colours.count++)] = {kAll[i], amount};
  }
  draft.change(colours);
}

RandomErasing random_erasing(const RandomErasingOptions& options) {
  REIGEN_CHECK(options.p >= 0 && options.p <= 1, "random_erasing: the probability must be in 0..1, got {}", options.p);
  require_range(options.scale, "scales of random_erasing");
  REIGEN_CHECK(options.scale.high <= 1, "random_erasing: a scale must be at most 1, got {}", options.scale.high);
  require_range(options.ratio, "ratios of random_erasing");
  return {options};
}

void RandomErasing::operator()(Draft& draft, Random& random) const {
  if (!random.chance(options.p)) return;
  const Size picture = draft.size();
  const double area = static_cast<double>(picture.width) * picture.height;
  for (int i = 0; i < kTries; ++i) {
    const auto [height, width] = random_sides(area, options.scale, options.ratio, random);
    if (height < 1 || width < 1 || height >= picture.height || width >= picture.width) continue;
    const int top = place(picture.height - height, random);
    const int left = place(picture.width - width, random);
    return draft.erase({left, top, width, height});
  }
}

}  // namespace reigen::image
