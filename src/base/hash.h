// The FNV-1a hash with 64 bits (Fowler, Noll and Vo), for names, identities of jobs and short records that ranks
// compare. It does not protect against deliberate collisions. For the contents of files use format/hash.h, which is ten
// times as fast.
#pragma once

#include <cstdint>
#include <string_view>

namespace reigen::base {

inline constexpr std::uint64_t kFnvBasis = 0xcbf29ce484222325;

// The hash after one more value, which is a byte or a 64-bit number.
constexpr std::uint64_t fnv1a_step(std::uint64_t hash, std::uint64_t value) { return (hash ^ value) * 0x100000001b3; }

constexpr std::uint64_t fnv1a(std::string_view bytes) {
  std::uint64_t hash = kFnvBasis;
  for (const char c : bytes) hash = fnv1a_step(hash, static_cast<unsigned char>(c));
  return hash;
}

}  // namespace reigen::base
