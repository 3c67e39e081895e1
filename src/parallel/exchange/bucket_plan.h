// Plans which gradients are sent together in one call.
#pragma once

#include <cstddef>
#include <vector>

namespace reigen::parallel {

struct ParameterPlace {
  std::size_t range = 0;    // the flat range that the parameter lies in; a range has one element type
  std::size_t segment = 0;  // the number of the parameter in this range
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

// `order`: parameters in the order in which backward completes them, as far as it is known. Buckets are filled and
// numbered in this order. A bucket is full once it holds at least `limit` bytes (0: one parameter each). After the
// first bucket of `limit` bytes of a range, the range's next buckets are smaller: such a bucket is full once it holds
// half of the range's remaining bytes, but not less than `small`. The reason: backward cannot hide the buckets that are
// sent last, so they should be small. If the gradients of a range fit into `limit`, they are one bucket. But the very
// first bucket of all is full with min(limit, small) bytes, so that sending starts soon.
std::vector<BucketPlan> plan_buckets(const std::vector<ParameterPlace>& order, std::size_t limit, std::size_t small);

// One bucket for each range. Buckets are in the order in which the last parameters of the ranges come in `order`.
std::vector<BucketPlan> plan_ranges(const std::vector<ParameterPlace>& order);

}  // namespace reigen::parallel
