// Cuts a list of units into stages: runs of units that follow each other.
// Thread rule: cut() is a pure function; any thread may call it.
#pragma once

#include <cstddef>
#include <vector>

namespace reigen::schedule {

// Returns the index of the first unit of each stage. Each stage has at least one unit. The largest sum of costs of a
// stage is as small as possible; of several such cuts the result has the one whose stages, from the first on, have the
// fewest units. costs[i] is the cost of unit i: 1 for each to count units, the number of parameters, or a measured
// time. Throws InvalidArgument if there are fewer units than stages, if `stages` is below 1, or if a cost is negative
// or not finite. Time: units^2 times stages.
std::vector<std::size_t> cut(const std::vector<double>& costs, int stages);

}  // namespace reigen::schedule
