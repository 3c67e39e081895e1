// The results of `reigen tune` for a backend and a number of ranks, as text that people can read and change:
//
//   reigen tuning 1
//   host node1
//   backend tcp
//   ranks 2
//   time all_reduce flat 12.3 us 1.25 GB/s        alpha and 1 / beta of a Line (model.h); groups do not read these
//   rules all_reduce:flat@<24K,all_reduce:direct  the rules that groups use
//   end
// Thread rule: plain values, which may be copied between threads.
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
  std::string rules = {};  // the rules of all operations, separated by commas
};

std::string to_text(const Table& table);
// Throws DataError naming the line if the text is not in the form of to_text(). `path`: the file to name in the error.
Table parse(const std::string& text, const std::string& path);

// The file $XDG_CACHE_HOME/reigen/tuning-BACKEND-N.txt for N ranks. If XDG_CACHE_HOME is not set, the folder is
// $HOME/.cache. Throws InvalidArgument when neither variable is set.
std::filesystem::path cache_path(Family family, int ranks);
// Reads the table at cache_path(). Returns nullopt when the file does not exist. Throws DataError when the table is
// damaged, or is for another backend or number of ranks. Throws IoError when the file cannot be read.
std::optional<Table> read_cache(Family family, int ranks);

}  // namespace reigen::comm::tuning
