#include "data/pictures/picture_dataset.h"

#include <ATen/ops/empty.h>

#include <cstring>
#include <utility>

#include "base/check.h"
#include "data/random_stream.h"
#include "reigen/image/draft.h"

namespace reigen::data {

namespace {

constexpr int kPad = 4;

// Every operation rounds to T, as `(x.to(T) / 255 - mean) / std` does on tensors, so the bits are the same.
template <typename T>
std::array<std::array<T, 256>, 3> normalised() {
  std::array<std::array<T, 256>, 3> tables{};
  for (std::size_t c = 0; c < 3; ++c) {
    for (std::size_t i = 0; i < 256; ++i) {
      tables[c][i] = (static_cast<T>(i) / T{255} - static_cast<T>(image::kCifar10Mean[c])) /
                     static_cast<T>(image::kCifar10Deviation[c]);
    }
  }
  return tables;
}

// Converts interleaved bytes to one plane for each colour.
template <typename T>
T* write_planes(const std::uint8_t* pixels, T* out) {
  static const auto tables = normalised<T>();
  for (std::size_t c = 0; c < 3; ++c) {
    for (std::size_t i = c; i < kPictureBytes; i += 3) *out++ = tables[c][pixels[i]];
  }
  return out;
}

// Pads with a black edge of 4 pixels, takes a random window of the old size, and mirrors it half of the time.
void augment(RandomStream& random, std::array<std::uint8_t, kPictureBytes>& pixels) {
  const int down = static_cast<int>(random.below(2 * kPad + 1)) - kPad;
  const int right = static_cast<int>(random.below(2 * kPad + 1)) - kPad;
  const bool mirrored = random.below(2) == 1;
  const auto from = pixels;
  constexpr int kSide = static_cast<int>(kPictureSide);
  std::uint8_t* out = pixels.data();
  for (int y = 0; y < kSide; ++y) {
    for (int x = 0; x < kSide; ++x, out += 3) {
      const int row = y + down;
      const int column = (mirrored ? kSide - 1 - x : x) + right;
      const bool inside = row >= 0 && row < kSide && column >= 0 && column < kSide;
      if (inside)
        std::memcpy(out, from.data() + 3 * (row * kSide + column), 3);
      else
        std::memset(out, 0, 3);
    }
  }
}

}  // namespace

PictureDataset::PictureDataset(std::string name, c10::ScalarType type, bool augment)
    : name_(std::move(name)), type_(type), augment_(augment) {
  REIGEN_CHECK(type == c10::kFloat || type == c10::kDouble, "pictures of {} can be had as float or double, not as {}",
               name_, c10::toString(type));
}

Samples PictureDataset::gather(std::span<const std::int64_t> indices) const { return gather_with(indices, nullptr); }

Samples PictureDataset::gather_in(const Pass& pass, std::span<const std::int64_t> indices) const {
  return gather_with(indices, augment_ ? &pass : nullptr);
}

Samples PictureDataset::gather_with(std::span<const std::int64_t> indices, const Pass* pass) const {
  const auto count = static_cast<std::int64_t>(indices.size());
  constexpr auto kSide = static_cast<std::int64_t>(kPictureSide);
  Samples samples{at::empty({count, 3, kSide, kSide}, type_), at::empty({count}, c10::kLong)};
  auto* label = samples.target.mutable_data_ptr<std::int64_t>();
  auto* as_float = type_ == c10::kFloat ? samples.input.mutable_data_ptr<float>() : nullptr;
  auto* as_double = type_ == c10::kDouble ? samples.input.mutable_data_ptr<double>() : nullptr;
  Pixels pixels;
  for (const std::int64_t index : indices) {
    REIGEN_ASSERT(index >= 0 && index < size(), "sample {} of {} in {}", index, size(), name_);
    *label++ = draw(index, pixels);
    if (pass != nullptr) {
      const auto item = static_cast<std::uint64_t>(pass->epoch) << 32 ^ static_cast<std::uint64_t>(index);
      RandomStream random(pass->seed, Purpose::kAugment, item);
      augment(random, pixels);
    }
    if (as_float != nullptr) {
      as_float = write_planes(pixels.data(), as_float);
    } else {
      as_double = write_planes(pixels.data(), as_double);
    }
  }
  return samples;
}

}  // namespace reigen::data
