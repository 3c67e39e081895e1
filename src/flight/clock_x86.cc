#include <cpuid.h>

#include "flight/clock.h"

namespace reigen::flight {

bool has_counter() {
  constexpr unsigned kPowerLeaf = 0x80000007;
  constexpr unsigned kInvariantTsc = 1U << 8;
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  return __get_cpuid(kPowerLeaf, &a, &b, &c, &d) != 0 && (d & kInvariantTsc) != 0;
}

std::uint64_t read_counter() { return __builtin_ia32_rdtsc(); }

}  // namespace reigen::flight
