#include "base/slurm.h"

#include <charconv>
#include <cstdint>

#include "base/environment.h"

namespace reigen::base {

bool in_slurm_step() {
  const auto step = get_environment("SLURM_STEP_ID");
  if (!step || !get_environment("SLURM_PROCID")) return false;
  constexpr std::uint64_t kFirstReserved = 4294967290U;
  std::uint64_t id = 0;
  const char* const last = step->data() + step->size();
  const auto [end, error] = std::from_chars(step->data(), last, id);
  return error == std::errc() && end == last && id < kFirstReserved;
}

}  // namespace reigen::base
