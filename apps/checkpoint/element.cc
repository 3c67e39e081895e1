#include "checkpoint/element.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

namespace reigen::apps::checkpoint {

using format::TensorType;

namespace {

// The format of a float with few bits. `special` says which bit patterns are infinite or NaN.
enum class Special { kIeee, kNanAtOnes, kNanAtMinusZero, kNone };
struct SmallFloat {
  int exponent_bits;
  int fraction_bits;
  int bias;
  Special special;
};

double value_of(const SmallFloat& type, std::uint64_t bits) {
  const auto sign_bit = std::uint64_t{1} << (type.exponent_bits + type.fraction_bits);
  const std::uint64_t fraction_mask = (std::uint64_t{1} << type.fraction_bits) - 1;
  const double sign = (bits & sign_bit) != 0 ? -1 : 1;
  const std::uint64_t number = bits & (sign_bit - 1);
  const auto exponent = static_cast<int>(number >> type.fraction_bits);
  const auto fraction = static_cast<double>(number & fraction_mask);
  const int most = (1 << type.exponent_bits) - 1;
  if (type.special == Special::kIeee && exponent == most) return fraction != 0 ? std::nan("") : sign * HUGE_VAL;
  if (type.special == Special::kNanAtOnes && number == sign_bit - 1) return std::nan("");
  if (type.special == Special::kNanAtMinusZero && bits == sign_bit) return std::nan("");
  const int scale = 1 - type.bias - type.fraction_bits;  // scale of the fraction when the exponent field is zero
  if (exponent == 0) return sign * std::ldexp(fraction, scale);
  const auto one = static_cast<double>(fraction_mask + 1);
  return sign * std::ldexp(fraction + one, scale + exponent - 1);
}

// The value of an element of any type but kC64.
double value_of(TensorType type, std::uint64_t bits) {
  switch (type) {
    case TensorType::kF64: return std::bit_cast<double>(bits);
    case TensorType::kF32: return std::bit_cast<float>(static_cast<std::uint32_t>(bits));
    case TensorType::kBF16: return std::bit_cast<float>(static_cast<std::uint32_t>(bits << 16));
    case TensorType::kF16: return value_of({5, 10, 15, Special::kIeee}, bits);
    case TensorType::kF8E4M3: return value_of({4, 3, 7, Special::kNanAtOnes}, bits);
    case TensorType::kF8E5M2: return value_of({5, 2, 15, Special::kIeee}, bits);
    case TensorType::kF8E4M3Fnuz: return value_of({4, 3, 8, Special::kNanAtMinusZero}, bits);
    case TensorType::kF8E5M2Fnuz: return value_of({5, 2, 16, Special::kNanAtMinusZero}, bits);
    case TensorType::kF8E8M0: return bits == 0xFF ? std::nan("") : std::ldexp(1.0, static_cast<int>(bits) - 127);
    case TensorType::kF6E2M3: return value_of({2, 3, 1, Special::kNone}, bits);
    case TensorType::kF6E3M2: return value_of({3, 2, 3, Special::kNone}, bits);
    case TensorType::kF4: return value_of({2, 1, 1, Special::kNone}, bits);
    case TensorType::kI64: return static_cast<double>(static_cast<std::int64_t>(bits));
    case TensorType::kI32: return static_cast<std::int32_t>(static_cast<std::uint32_t>(bits));
    case TensorType::kI16: return static_cast<std::int16_t>(static_cast<std::uint16_t>(bits));
    case TensorType::kI8: return static_cast<std::int8_t>(static_cast<std::uint8_t>(bits));
    case TensorType::kU64:
    case TensorType::kU32:
    case TensorType::kU16:
    case TensorType::kU8:
    case TensorType::kBool:
    case TensorType::kC64: break;
  }
  return static_cast<double>(bits);
}

}  // namespace

std::uint64_t bits_at(TensorType type, std::span<const std::byte> tensor, std::uint64_t index) {
  const unsigned size = format::bits_of(type);
  const std::uint64_t at = index * size;
  std::uint64_t bits = 0;
  const std::size_t first = static_cast<std::size_t>(at / 8);
  // Reads all bytes of the element, or the two bytes that may hold a packed element.
  const std::size_t count = size >= 8 ? size / 8 : std::min<std::size_t>(2, tensor.size() - first);
  std::memcpy(&bits, tensor.data() + first, count);
  if (size >= 8) return bits;
  return (bits >> at % 8) & ((std::uint64_t{1} << size) - 1);
}

double distance(TensorType type, std::uint64_t a, std::uint64_t b) {
  double far = 0;
  if (type == TensorType::kC64) {
    const auto part = [](std::uint64_t bits, int shift) {
      return static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(bits >> shift)));
    };
    far = std::hypot(part(a, 0) - part(b, 0), part(a, 32) - part(b, 32));
  } else {
    far = std::abs(value_of(type, a) - value_of(type, b));
  }
  return std::isnan(far) ? HUGE_VAL : far;
}

}  // namespace reigen::apps::checkpoint
