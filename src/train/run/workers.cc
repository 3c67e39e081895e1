#include "train/run/workers.h"

#include <algorithm>

#include "comm/core_share_of.h"

namespace reigen::train {

data::Workers workers_of(const Run& run) {
  if (run.config.data.workers) return {.least = static_cast<int>(*run.config.data.workers)};
  constexpr int kMost = 64;  // as data.workers
  return {.least = 1, .most = std::clamp(comm::core_share_of(run.world).threads - 1, 1, kMost)};
}

}  // namespace reigen::train
