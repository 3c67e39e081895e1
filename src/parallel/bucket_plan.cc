#include "parallel/bucket_plan.h"

#include <algorithm>
#include <map>

namespace reigen::parallel {

std::vector<BucketPlan> plan_buckets(const std::vector<ParameterPlace>& parameters, std::size_t limit,
                                     std::size_t first_limit) {
  struct Filling {
    BucketPlan bucket;
    std::size_t bytes = 0;
  };
  std::vector<BucketPlan> result;
  std::map<std::size_t, Filling> filling;  // by range: a bucket holds one element type
  for (auto place = parameters.rbegin(); place != parameters.rend(); ++place) {
    const auto [entry, is_new] = filling.try_emplace(place->range);
    Filling& open = entry->second;
    if (is_new) open.bucket = {.range = place->range, .first = place->segment, .last = place->segment};
    open.bucket.first = place->segment;
    open.bytes += place->bytes;
    if (open.bytes < (result.empty() ? std::min(limit, first_limit) : limit)) continue;
    result.push_back(open.bucket);
    filling.erase(entry);
  }
  // What is left was complete, in backward's order, when its first segment was reached.
  std::vector<BucketPlan> rest;
  for (auto place = parameters.begin(); place != parameters.end(); ++place) {
    const auto entry = filling.find(place->range);
    if (entry == filling.end() || entry->second.bucket.first != place->segment) continue;
    rest.push_back(entry->second.bucket);
  }
  result.insert(result.end(), rest.rbegin(), rest.rend());
  return result;
}

}  // namespace reigen::parallel
