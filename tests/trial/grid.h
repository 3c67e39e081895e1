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
  // True: each operation with each type and reduction once, with a count, memory and manner that the seed picks. False:
  // all counts and kinds of memory.
  bool quick = false;
  std::uint64_t seed = 1;
  // If set, only the operations that have this algorithm. The options of the group must select it.
  std::string algorithm = {};
  // The number of runs that must give the same bits. A quick grid makes fewer.
  int runs = 100;
  // Called at the first wrong value.
  std::function<void(const std::string&)> on_wrong = {};
};

// The number of cases of each operation and of each other check. A wrong value ends the grid.
using GridCounts = std::map<std::string, std::uint64_t>;
GridCounts run_grid(Communicator& world, const GridOptions& options);

// Every defined combination of operation, type and reduction; those that need two ranks only with `ranks` > 1.
std::vector<Problem> all_combinations(int ranks);

// The counts at which the backend takes another way, and counts that are no multiple of any block.
std::vector<std::size_t> counts_for(const Problem& problem, const std::string& backend, int ranks);

}  // namespace reigen::trial
