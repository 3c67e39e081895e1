// Runs the schedules of all ranks in one process, checks that they match, and counts messages and elements.
//
// Time is counted in messages. A step with transfers takes one unit, and its messages arrive one unit after it began.
#pragma once

#include <cstddef>
#include <vector>

#include "comm/schedule/schedule.h"

namespace reigen::testing {

struct SimulatedRank {
  comm::schedule::Schedule schedule;
  std::vector<std::byte> input;
  std::vector<std::byte> output;  // empty: the output is in place, inside the input
  bool in_place = false;
  std::size_t output_in_input = 0;  // in place: the byte of the input at which the output begins ...
  std::size_t input_in_output = 0;  // ... or the byte of a larger output at which the input begins
};

struct Count {
  std::size_t steps = 0;     // steps with transfers
  std::size_t sent = 0;      // elements sent
  std::size_t received = 0;  // elements received
};

struct SimulatedRun {
  std::vector<Count> ranks;
  std::size_t depth = 0;  // units until the last rank is done
  std::vector<std::vector<std::byte>> outputs;
};

// Fails the running test if ranks wait for each other for ever, if a message has not the expected length, if a message
// is left over, or if a range is written in the step in which it is sent.
SimulatedRun simulate(std::vector<SimulatedRank> ranks, comm::DataType type, comm::ReduceOp op);

}  // namespace reigen::testing
