// Flight records as JSON: one line for each rank and one for each operation.
#pragma once

#include <string>
#include <vector>

#include "flight/read.h"

namespace reigen::flight {

// docs/flight_recorder.md lists the keys.
std::string to_json_lines(const std::vector<ReadRank>& ranks);

// Writes the lines of to_json_lines() to the file `path`, or to stdout if `path` is "-". Throws IoError.
void write_json_lines(const std::string& path, const std::vector<ReadRank>& ranks);

}  // namespace reigen::flight
