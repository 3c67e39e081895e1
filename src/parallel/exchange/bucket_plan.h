// Plans which gradients are sent together in one call.
#pragma once

#include <cstddef>
#include <vector>

namespace reigen::parallel {

struct ParameterPlace {
  std::size_t range = 0;    // the number of the flat range with the parameter; a range has one element type
  std::size_t segment = 0;  // the number of the parameter in this range
  std::size_t bytes = 0;
};

struct BucketPlan {
  std::size_t range = 0;
  std::vector<std::size_t> segments;  // ascending

  // The segments from `first` to `last`, both included, which are neighbours in memory.
  struct Run {
    std::size_t first = 0;
    std::size_t last = 0;
  };
  std::vector<Run> runs() const;
};

// `order`: the parameters in the order in which backward completes their gradients, as far as this order is known.
// Buckets are filled and numbered in this order. A bucket is full once it holds at least `limit` bytes. With `limit` 0
// each bucket holds one parameter. After a range has a bucket of `limit` bytes, its next buckets are smaller. Such a
// bucket is full once it holds half of the bytes that the range had left when the bucket began, but at least `small`
// bytes. Backward cannot hide the buckets that are sent last, so they should be small. If the gradients of a range fit
// into `limit`, they are one bucket. The very first bucket is an exception: it is full with min(limit, small) bytes, so
// that sending starts soon.
std::vector<BucketPlan> plan_buckets(const std::vector<ParameterPlace>& order, std::size_t limit, std::size_t small);

// Returns one bucket for each range. A range is complete when the gradient of its last parameter in `order` is
// complete. The buckets are in the order in which their ranges are complete.
std::vector<BucketPlan> plan_ranges(const std::vector<ParameterPlace>& order);

}  // namespace reigen::parallel
