// Runs the schedules of all ranks in one process, checks that they fit together, and counts.
//
// Time is counted in messages: a step with transfers takes one unit, what it sends arrives one unit after it began.
#pragma once

#include <cstddef>
#include <vector>

#include "comm/schedule/schedule.h"

namespace reigen::testing {

struct SimulatedRank {
  comm::schedule::Schedule schedule;
  std::vector<std::byte> input;
  std::vector<std::byte> output;  // empty: in place, at `in_place_at` bytes of the larger buffer
  bool in_place = false;
  std::size_t output_in_input = 0;  // in place: where the output begins in the input ...
  std::size_t input_in_output = 0;  // ... or the input in the output, which is then the larger one
};

struct Count {
  std::size_t steps = 0;     // with transfers
  std::size_t sent = 0;      // elements
  std::size_t received = 0;  // elements
};

struct SimulatedRun {
  std::vector<Count> ranks;
  std::size_t depth = 0;  // units until the last rank is done
  std::vector<std::vector<std::byte>> outputs;
};

// Fails the running test when ranks wait for each other, when a message has another length than is expected, when
// something is left over, or when a range is written in the step in which it is sent.
SimulatedRun simulate(std::vector<SimulatedRank> ranks, comm::DataType type, comm::ReduceOp op);

}  // namespace reigen::testing
