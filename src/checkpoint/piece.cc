#include "reigen/checkpoint/piece.h"

#include <algorithm>
#include <cstring>

namespace reigen::checkpoint {

namespace {

// A value whose exponent bits are all ones is infinite if its fraction is zero, else NaN.
template <class Bits>
NotFinite not_finite_among(std::span<const std::byte> bytes, Bits exponent) {
  const Bits number = static_cast<Bits>(~Bits{0}) >> 1;  // all bits but the sign
  unsigned nan = 0;
  unsigned infinite = 0;
  for (std::size_t at = 0; at + sizeof(Bits) <= bytes.size(); at += sizeof(Bits)) {
    Bits bits = 0;
    std::memcpy(&bits, bytes.data() + at, sizeof(Bits));
    bits = static_cast<Bits>(bits & number);
    nan |= bits > exponent ? 1U : 0U;
    infinite |= bits == exponent ? 1U : 0U;
  }
  return {.has_nan = nan != 0, .has_infinity = infinite != 0};
}

bool has_byte(std::span<const std::byte> bytes, unsigned value) {
  return std::find(bytes.begin(), bytes.end(), static_cast<std::byte>(value)) != bytes.end();
}

}  // namespace

NotFinite not_finite_in(const Piece& piece) {
  switch (piece.type) {
    case format::TensorType::kF64: return not_finite_among<std::uint64_t>(piece.bytes, 0x7FF0'0000'0000'0000U);
    case format::TensorType::kF32: return not_finite_among<std::uint32_t>(piece.bytes, 0x7F80'0000U);
    case format::TensorType::kF16: return not_finite_among<std::uint16_t>(piece.bytes, 0x7C00U);
    case format::TensorType::kBF16: return not_finite_among<std::uint16_t>(piece.bytes, 0x7F80U);
    case format::TensorType::kC64: return not_finite_among<std::uint32_t>(piece.bytes, 0x7F80'0000U);
    case format::TensorType::kF8E5M2: return not_finite_among<std::uint8_t>(piece.bytes, 0x7CU);
    case format::TensorType::kF8E4M3: return {.has_nan = has_byte(piece.bytes, 0x7F) || has_byte(piece.bytes, 0xFF)};
    case format::TensorType::kF8E4M3Fnuz:
    case format::TensorType::kF8E5M2Fnuz: return {.has_nan = has_byte(piece.bytes, 0x80)};
    case format::TensorType::kF8E8M0: return {.has_nan = has_byte(piece.bytes, 0xFF)};
    default: return {};
  }
}

}  // namespace reigen::checkpoint
