// The algorithms by the names under which people choose them, and which is taken when nobody chooses.
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
  // What one piece is cut from when the length of a piece is given; kNothing: never cut.
  enum class Cuts { kNothing, kBlock, kWhole } cuts = Cuts::kNothing;
};

// Of an operation, the usual one first; uneven blocks take those of even ones.
const std::vector<Algorithm>& algorithms(OperationKind kind);

// Null when there is none of that name.
const Algorithm* find(OperationKind kind, const std::string& name);

// The one for `bytes` in all. It may change behind the sizes of switch_points().
const Algorithm& usual(OperationKind kind, std::size_t bytes, int ranks);

const std::vector<std::size_t>& switch_points();

// The problem of a call.
Problem problem_of(const Call& call, int rank, int size);

// Pieces so that none has more than `bytes`, at least one.
std::size_t segments_for(const Algorithm& algorithm, const Problem& problem, std::size_t element, std::size_t bytes);

}  // namespace reigen::comm::schedule
