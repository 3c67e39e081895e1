// The algorithms with the names by which users choose them, and the algorithm that runs if the user chooses none.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "comm/call/call.h"
#include "comm/schedule/schedule.h"

namespace reigen::comm::schedule {

struct Algorithm {
  std::string name;
  Schedule (*make)(const Problem& problem);
  // What the algorithm cuts into pieces of a given length: each block, the whole array, or nothing.
  enum class Cuts { kNothing, kBlock, kWhole } cuts = Cuts::kNothing;
};

// The algorithms of an operation. The first one is the default, except at sizes for which usual() chooses another. An
// operation with uneven blocks has the algorithms of the operation with even blocks.
const std::vector<Algorithm>& algorithms(OperationKind kind);

// Null when no algorithm has this name.
const Algorithm* find(OperationKind kind, const std::string& name);

// The algorithm that runs if no rule chooses one, for a call of `bytes` bytes in all. The result may change just above
// the sizes that switch_points() lists.
const Algorithm& usual(OperationKind kind, std::size_t bytes, int ranks);

const std::vector<std::size_t>& switch_points();

// The Problem of a call.
Problem problem_of(const Call& call, int rank, int size);

// The smallest number of pieces, at least one, with which no piece has more than `bytes` bytes. `element`: bytes of one
// element.
std::size_t segments_for(const Algorithm& algorithm, const Problem& problem, std::size_t element, std::size_t bytes);

}  // namespace reigen::comm::schedule
