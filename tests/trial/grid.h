// Every operation with every type, reduction, count at which something changes, kind of memory and manner of calling.
// Thread rule: the communicator's.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "reigen/comm/communicator.h"
#include "trial/values.h"

namespace reigen::trial {

struct GridOptions {
  // Each operation with each type and reduction once, at a count, memory and manner that the seed picks; or all.
  bool quick = false;
  std::uint64_t seed = 1;
  // Only the operations that have it; the group must have been told to take it.
  std::string algorithm = {};
  // Of which results must be the same bits; in a quick grid fewer.
  int runs = 100;
  // Called at the first wrong value.
  std::function<void(const std::string&)> on_wrong = {};
};

// Cases by operation and by what else was looked at; a wrong value ends it.
using GridCounts = std::map<std::string, std::uint64_t>;
GridCounts run_grid(Communicator& world, const GridOptions& options);

// Every defined combination of operation, type and reduction; those that need two ranks only with `ranks` > 1.
std::vector<Problem> all_combinations(int ranks);

// Where the way through the backend changes, and numbers that fit nothing.
std::vector<std::size_t> counts_for(const Problem& problem, const std::string& backend, int ranks);

}  // namespace reigen::trial
