// Elements of tensors as numbers, for diff. Thread rule: no shared state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "reigen/format/safetensors.h"

namespace reigen::apps::checkpoint {

// The bits of element `index`. Also for packed types, whose first element is in the lowest bits of the first byte.
std::uint64_t bits_at(format::TensorType type, std::span<const std::byte> tensor, std::uint64_t index);

// The absolute difference of two elements; for complex elements, the modulus of their difference. It is infinite if
// either element is not a number.
double distance(format::TensorType type, std::uint64_t a, std::uint64_t b);

}  // namespace reigen::apps::checkpoint
