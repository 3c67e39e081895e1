#include "flight/clock.h"

namespace reigen::flight {

bool has_counter() { return true; }

std::uint64_t read_counter() {
  std::uint64_t ticks = 0;
  asm volatile("mrs %0, cntvct_el0" : "=r"(ticks));
  return ticks;
}

}  // namespace reigen::flight
