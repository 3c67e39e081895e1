// Philox 4x32-10: random numbers as a function of (key, counter), so that any element of a sequence can be computed
// without the elements before it. Salmon et al., Parallel random numbers: as easy as 1, 2, 3 (SC 2011), table 2 and
// section 3.3.
// Thread rule: pure functions.
#pragma once

#include <array>
#include <cstdint>

namespace reigen::base {

// Four independent words of 32 uniform bits for each pair of key and counter.
inline std::array<std::uint32_t, 4> philox(std::uint64_t key, std::uint64_t counter_low,
                                           std::uint64_t counter_high = 0) {
  std::array<std::uint32_t, 4> c = {
      static_cast<std::uint32_t>(counter_low), static_cast<std::uint32_t>(counter_low >> 32),
      static_cast<std::uint32_t>(counter_high), static_cast<std::uint32_t>(counter_high >> 32)};
  auto k0 = static_cast<std::uint32_t>(key);
  auto k1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53} * c[0];
    const std::uint64_t b = std::uint64_t{0xCD9E8D57} * c[2];
    c = {static_cast<std::uint32_t>(b >> 32) ^ c[1] ^ k0, static_cast<std::uint32_t>(b),
         static_cast<std::uint32_t>(a >> 32) ^ c[3] ^ k1, static_cast<std::uint32_t>(a)};
    k0 += 0x9E3779B9;  // Weyl sequence: golden ratio, sqrt(3) - 1
    k1 += 0xBB67AE85;
  }
  return c;
}

// The word as a number in [0, 1), exact in a double.
inline double unit_interval(std::uint32_t word) { return word * 0x1p-32; }

}  // namespace reigen::base
