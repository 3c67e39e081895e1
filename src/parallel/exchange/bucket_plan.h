// Which gradients travel together.
#pragma once

#include <cstddef>
#include <vector>

namespace reigen::parallel {

struct ParameterPlace {
  std::size_t range = 0;    // the flat range that it lies in (one element type)
  std::size_t segment = 0;  // its segment in this range
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
// numbered in this order. A bucket is full once it holds at least `limit` bytes (0: one parameter each). After the
// first such bucket of a range, a bucket is full with half of the bytes that are still to come, but not less than
// `small`: backward cannot hide the buckets that travel last, so they should be small. Gradients that fit into `limit`
// are not cut. The first bucket of all is full with min(limit, small) bytes, so that something travels soon.
std::vector<BucketPlan> plan_buckets(const std::vector<ParameterPlace>& order, std::size_t limit, std::size_t small);

// One bucket for each range, in the order in which the ranges' last parameters come in `order`.
std::vector<BucketPlan> plan_ranges(const std::vector<ParameterPlace>& order);

}  // namespace reigen::parallel
