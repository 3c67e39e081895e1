// How far the clocks of two machines are apart.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "reigen/comm/communicator.h"

namespace reigen::train {

struct RoundTrip {
  std::int64_t left = 0;      // on this clock
  std::int64_t answered = 0;  // on the other
  std::int64_t returned = 0;  // on this clock
};

// What must be added to this clock to have the other: of the shortest round trip, as if both ways took as long.
std::int64_t offset_of(const std::vector<RoundTrip>& trips);

using Clock = std::function<std::int64_t()>;

// What must be added to this rank's clock to have rank 0's; 0 on rank 0 and on its machine (`machines`: a word for
// each rank). Collective and blocking.
std::int64_t offset_to_rank_0(Communicator world, const std::vector<std::string>& machines, const Clock& clock);

// This boot of this machine's kernel.
std::string machine_word();

}  // namespace reigen::train
