// What `reigen tune` found for a backend and a number of ranks, as text that people can read and change:
//
//   reigen tuning 1
//   host node1
//   backend tcp
//   ranks 2
//   time all_reduce flat 12.3 us 1.25 GB/s       what was measured; nothing depends on it
//   rules all_reduce:flat@<24K,all_reduce:direct  what is taken
//   end
// Thread rule: values.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "comm/call/algorithm_choice.h"
#include "comm/tuning/model.h"

namespace reigen::comm::tuning {

struct Timing {
  OperationKind kind;
  std::string algorithm;
  Line line;
};

struct Table {
  std::string host;
  Family family = Family::kTcp;
  int ranks = 0;
  std::vector<Timing> timings = {};
  std::string rules = {};  // of all operations
};

std::string to_text(const Table& table);
// Throws DataError with the line for what to_text() would not write. `path`: for messages.
Table parse(const std::string& text, const std::string& path);

// $XDG_CACHE_HOME or ~/.cache, then reigen/tuning-BACKEND-N.txt. Throws InvalidArgument when neither is known.
std::filesystem::path cache_path(Family family, int ranks);
// Empty when there is none. Throws DataError when it is damaged or of another backend or number of ranks, IoError when
// it cannot be read.
std::optional<Table> read_cache(Family family, int ranks);

}  // namespace reigen::comm::tuning
