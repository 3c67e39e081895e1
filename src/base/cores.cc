#include "base/cores.h"

#include <sched.h>
#include <unistd.h>

namespace reigen::base {

bool have_cores(int ranks, int threads) {
  cpu_set_t bound_to;
  const bool known = ::sched_getaffinity(0, sizeof(bound_to), &bound_to) == 0;
  if (known && CPU_COUNT(&bound_to) < threads) return false;
  return static_cast<long>(ranks) * threads <= ::sysconf(_SC_NPROCESSORS_ONLN);
}

}  // namespace reigen::base
