// Measures the difference between the clocks of two machines.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "reigen/comm/communicator.h"

namespace reigen::train {

struct RoundTrip {
  std::int64_t left = 0;      // this rank's clock when it sent the question
  std::int64_t answered = 0;  // the other rank's clock when it answered
  std::int64_t returned = 0;  // this rank's clock when the answer arrived
};

// Returns the number to add to this rank's clock to get the time of the other rank's clock. Uses the shortest round
// trip and assumes that both ways took the same time.
std::int64_t offset_of(const std::vector<RoundTrip>& trips);

using Clock = std::function<std::int64_t()>;

// Returns the number to add to this rank's clock to get rank 0's clock. The number is 0 on the machine of rank 0.
// `machines` has one word for each rank, which names the rank's machine. Collective and blocking.
std::int64_t offset_to_rank_0(Communicator world, const std::vector<std::string>& machines, const Clock& clock);

// A word that names this machine and the current boot of its kernel.
std::string machine_word();

}  // namespace reigen::train
