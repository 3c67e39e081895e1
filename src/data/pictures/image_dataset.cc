#include "data/pictures/image_dataset.h"

#include <ATen/ops/empty.h>

#include <utility>

#include "base/check.h"

namespace reigen::data {
namespace {

// Every operation rounds to T, as `(x.to(T) / 255 - mean) / std` does on tensors, so the bits are the same.
template <typename T>
std::array<T, 256> normalised_levels() {
  std::array<T, 256> table{};
  for (std::size_t i = 0; i < table.size(); ++i) {
    table[i] = (static_cast<T>(i) / T{255} - static_cast<T>(0.1307)) / static_cast<T>(0.3081);
  }
  return table;
}

template <typename T>
T* write_row(const std::uint8_t* pixels, T* out) {
  static const std::array<T, 256> table = normalised_levels<T>();
  for (std::size_t i = 0; i < kDigitPixels; ++i) *out++ = table[pixels[i]];
  return out;
}

}  // namespace

ImageDataset::ImageDataset(std::string name, c10::ScalarType type) : name_(std::move(name)), type_(type) {
  REIGEN_CHECK(type == c10::kFloat || type == c10::kDouble, "images of {} can be had as float or double, not as {}",
               name_, c10::toString(type));
}

Samples ImageDataset::gather(std::span<const std::int64_t> indices) const {
  const auto count = static_cast<std::int64_t>(indices.size());
  Samples samples{at::empty({count, 1, 28, 28}, type_), at::empty({count}, c10::kLong)};
  auto* label = samples.target.mutable_data_ptr<std::int64_t>();
  auto* as_float = type_ == c10::kFloat ? samples.input.mutable_data_ptr<float>() : nullptr;
  auto* as_double = type_ == c10::kDouble ? samples.input.mutable_data_ptr<double>() : nullptr;
  Pixels scratch;
  for (const std::int64_t index : indices) {
    REIGEN_ASSERT(index >= 0 && index < size(), "sample {} of {} in {}", index, size(), name_);
    const Image sample = image(index, scratch);
    *label++ = sample.label;
    if (as_float != nullptr) {
      as_float = write_row(sample.pixels, as_float);
    } else {
      as_double = write_row(sample.pixels, as_double);
    }
  }
  return samples;
}

}  // namespace reigen::data
