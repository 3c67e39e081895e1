// Elements of tensors as numbers, for diff. Thread rule: no shared state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "reigen/format/safetensors.h"

namespace reigen::apps::checkpoint {

// The bits of element `index`, of packed types too: their first element lies in the lowest bits of the first byte.
std::uint64_t bits_at(format::TensorType type, std::span<const std::byte> tensor, std::uint64_t index);

// How far two elements of a type are from each other; of complex ones the length of the difference. Infinite where one
// of them is no number.
double distance(format::TensorType type, std::uint64_t a, std::uint64_t b);

}  // namespace reigen::apps::checkpoint
