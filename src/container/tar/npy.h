// The .npy format, in which tensors lie in a tar. Source: numpy.lib.format, versions 1.0 to 3.0.
// Thread rule: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "reigen/format/safetensors.h"

namespace reigen::container {

struct Npy {
  std::optional<format::TensorType> type;  // nothing for types without a name in numpy, which are written as bytes
  std::vector<std::int64_t> shape;
  std::span<const std::byte> data;
};

// The bytes of a file before its data.
std::string npy_head(format::TensorType type, const std::vector<std::int64_t>& shape);

// Nothing for a damaged file, and for elements in another order than row-major, little-endian.
std::optional<Npy> parse_npy(std::span<const std::byte> file);

}  // namespace reigen::container
