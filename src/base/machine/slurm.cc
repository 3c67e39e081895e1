#include "base/machine/slurm.h"

#include <cstdint>

#include "base/environment.h"
#include "base/text.h"

namespace reigen::base {

bool in_slurm_step() {
  const auto step = get_environment("SLURM_STEP_ID");
  if (!step || !get_environment("SLURM_PROCID")) return false;
  constexpr std::uint64_t kFirstReserved = 4294967290U;
  const auto id = parse<std::uint64_t>(*step);
  return id && *id < kFirstReserved;
}

}  // namespace reigen::base
