// Merged records in words: only what helps to see who waits for whom.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "flight/read.h"

namespace reigen::flight {

// Whole lines, at most `max_lines`, indented by two; `now` is what "ago" counts from. Empty when the ranks have
// recorded nothing, or nothing that two ranks could differ in.
std::string summary(const std::vector<ReadRank>& ranks, std::int64_t now, std::size_t max_lines);

// Every rank has recorded, and all have completed the same calls.
bool all_agree(const std::vector<ReadRank>& ranks);

// all_reduce(100 float32, sum) "step 3"
std::string describe(const ReadOperation& operation);

// "12 ms", "1.5 s", "2 min 5 s"
std::string duration(std::int64_t nanoseconds);

// "rank 2", "ranks 0-2, 5"; in ascending order
std::string rank_list(const std::vector<int>& ranks);

}  // namespace reigen::flight
