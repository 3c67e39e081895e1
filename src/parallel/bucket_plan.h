// Which gradients travel together.
#pragma once

#include <cstddef>
#include <vector>

namespace reigen::parallel {

struct ParameterPlace {
  std::size_t range = 0;    // of which flat range (element type)
  std::size_t segment = 0;  // which of its segments
  std::size_t bytes = 0;
};

// Segments [first, last] of one range: neighbours in memory.
struct BucketPlan {
  std::size_t range = 0;
  std::size_t first = 0;
  std::size_t last = 0;
};

// Backward produces gradients roughly in reverse registration order, so buckets are filled and numbered in that order.
// A bucket is full once it holds at least `limit` bytes (0: one parameter each), the first one once it holds min(limit,
// first_limit). `parameters` in registration order; those of a range have ascending segments.
std::vector<BucketPlan> plan_buckets(const std::vector<ParameterPlace>& parameters, std::size_t limit,
                                     std::size_t first_limit);

}  // namespace reigen::parallel
