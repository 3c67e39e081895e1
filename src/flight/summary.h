// A summary of merged records as text. It shows only what helps to see which rank waits for which.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "flight/read.h"

namespace reigen::flight {

// The summary in whole lines, at most `max_lines`, indented by two. "... ago" in the text means before `now`. Empty
// when the ranks have recorded nothing, or nothing in which two ranks could differ.
std::string summary(const std::vector<ReadRank>& ranks, std::int64_t now, std::size_t max_lines);

// Whether every rank has a record and all ranks have completed the same calls.
bool all_agree(const std::vector<ReadRank>& ranks);

// all_reduce(100 float32, sum) "step 3"
std::string describe(const ReadOperation& operation);

// Such as "12 ms", "1.5 s", "2 min 5 s".
std::string duration(std::int64_t nanoseconds);

// "rank 2", "ranks 0-2, 5"; `ranks` must be in ascending order
std::string rank_list(const std::vector<int>& ranks);

}  // namespace reigen::flight
