#include "reigen/checkpoint/piece.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <span>

namespace reigen::checkpoint {
namespace {

template <class Bits>
NotFinite of_three(format::TensorType type, Bits middle) {
  const Bits elements[] = {0, middle, 1};
  return not_finite_in({.name = "x", .type = type, .bytes = std::as_bytes(std::span(elements))});
}

TEST(Piece, ItIsSeenWhatIsNoNumber) {
  using Type = format::TensorType;
  const auto expect = [](NotFinite got, bool nan, bool infinity) {
    EXPECT_EQ(got.has_nan, nan);
    EXPECT_EQ(got.has_infinity, infinity);
  };
  for (const std::uint32_t sign : {0U, 0x8000'0000U}) {
    expect(of_three<std::uint32_t>(Type::kF32, sign | 0x7F80'0000U), false, true);
    expect(of_three<std::uint32_t>(Type::kF32, sign | 0x7F80'0001U), true, false);
    expect(of_three<std::uint32_t>(Type::kF32, sign | 0x7FC0'0000U), true, false);
    expect(of_three<std::uint32_t>(Type::kF32, sign | 0x7F7F'FFFFU), false, false);
    const auto half = static_cast<std::uint16_t>(sign >> 16);
    expect(of_three<std::uint16_t>(Type::kF16, half | 0x7C00U), false, true);
    expect(of_three<std::uint16_t>(Type::kF16, half | 0x7C01U), true, false);
    expect(of_three<std::uint16_t>(Type::kF16, half | 0x7BFFU), false, false);
    expect(of_three<std::uint16_t>(Type::kBF16, half | 0x7F80U), false, true);
    expect(of_three<std::uint16_t>(Type::kBF16, half | 0x7F81U), true, false);
    expect(of_three<std::uint16_t>(Type::kBF16, half | 0x7C00U), false, false);
    const std::uint64_t wide = std::uint64_t{sign} << 32;
    expect(of_three<std::uint64_t>(Type::kF64, wide | 0x7FF0'0000'0000'0000U), false, true);
    expect(of_three<std::uint64_t>(Type::kF64, wide | 0x7FF0'0000'0000'0001U), true, false);
    expect(of_three<std::uint64_t>(Type::kF64, wide | 0x7FEF'FFFF'FFFF'FFFFU), false, false);
  }
  expect(of_three<std::uint32_t>(Type::kI32, 0x7F80'0001U), false, false);
}

}  // namespace
}  // namespace reigen::checkpoint
