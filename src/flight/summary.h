// A summary of merged records as text. It shows only what helps to see which rank waits for which other rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "flight/read.h"

namespace reigen::flight {

// The summary: at most `max_lines` lines, each indented by two spaces. "... ago" in the text means before `now`. Empty
// when the ranks have recorded nothing, or nothing in which two ranks could differ.
std::string summary(const std::vector<ReadRank>& ranks, std::int64_t now, std::size_t max_lines);

// Whether every rank has a record and all ranks have completed the same calls.
bool all_agree(const std::vector<ReadRank>& ranks);

// A text such as: all_reduce(100 float32, sum) "step 3"
std::string describe(const ReadOperation& operation);

// A text such as "12 ms", "1.5 s" or "2 min 5 s".
std::string duration(std::int64_t nanoseconds);

// A text such as "rank 2" or "ranks 0-2, 5". `ranks` must be in ascending order.
std::string rank_list(const std::vector<int>& ranks);

}  // namespace reigen::flight
