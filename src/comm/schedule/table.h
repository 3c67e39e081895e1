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
  // What the algorithm cuts into Problem::segments pieces: nothing, each block, or the whole array.
  enum class Cuts { kNothing, kBlock, kWhole } cuts = Cuts::kNothing;
};

// The algorithms of an operation. The first one is the default, except at sizes for which usual() chooses another. An
// operation on blocks of different sizes (all_gather_v) has the algorithms of the operation on blocks of one size
// (all_gather).
const std::vector<Algorithm>& algorithms(OperationKind kind);

// Returns null when no algorithm of the operation has this name.
const Algorithm* find(OperationKind kind, const std::string& name);

// The algorithm that runs if no rule of the user (GroupOptions::algorithms) chooses one. `bytes`: the size of the whole
// call. The result may change just above the sizes that switch_points() lists.
const Algorithm& usual(OperationKind kind, std::size_t bytes, int ranks);

const std::vector<std::size_t>& switch_points();

// Describes a call of this rank as a Problem, with one segment.
Problem problem_of(const Call& call, int rank, int size);

// The smallest number of pieces with which no piece has more than `bytes` bytes. Returns 1 if the algorithm cuts
// nothing. `element`: the bytes of one element.
std::size_t segments_for(const Algorithm& algorithm, const Problem& problem, std::size_t element, std::size_t bytes);

}  // namespace reigen::comm::schedule
