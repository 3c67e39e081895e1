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

struct BucketPlan {
  std::size_t range = 0;
  std::vector<std::size_t> segments;  // ascending

  // Segments [first, last] that are neighbours in memory.
  struct Run {
    std::size_t first = 0;
    std::size_t last = 0;
  };
  std::vector<Run> runs() const;
};

// `order`: parameters in the order in which backward completes them, as far as it is known; buckets are filled and
// numbered in it. A bucket is full once it holds at least `limit` bytes (0: one parameter each). Behind the first such
// one of a type half of what is still to come is enough, but not less than `small`: what travels last is what backward
// cannot hide, and it shall be little. What fits into `limit` is not cut. The first bucket of all is full with
// min(limit, small): something shall travel soon.
std::vector<BucketPlan> plan_buckets(const std::vector<ParameterPlace>& order, std::size_t limit, std::size_t small);

// One for each range, in the order in which their last parameters come.
std::vector<BucketPlan> plan_ranges(const std::vector<ParameterPlace>& order);

}  // namespace reigen::parallel
