#include "parallel/exchange/bucket_plan.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace reigen::parallel {

std::vector<BucketPlan::Run> BucketPlan::runs() const {
  std::vector<Run> result;
  for (const std::size_t segment : segments) {
    if (!result.empty() && result.back().last + 1 == segment)
      result.back().last = segment;
    else
      result.push_back({segment, segment});
  }
  return result;
}

std::vector<BucketPlan> plan_buckets(const std::vector<ParameterPlace>& order, std::size_t limit, std::size_t small) {
  struct Filling {
    BucketPlan bucket;
    std::size_t limit = 0;
    std::size_t bytes = 0;
    std::size_t complete = 0;  // position in `order` of the bucket's last parameter
  };
  std::vector<BucketPlan> result;
  const auto close = [&](Filling& filling) {
    std::sort(filling.bucket.segments.begin(), filling.bucket.segments.end());
    result.push_back(std::move(filling.bucket));
  };
  std::map<std::size_t, std::size_t> to_come;  // for each range: bytes of its parameters that are in no bucket yet
  for (const ParameterPlace& place : order) to_come[place.range] += place.bytes;
  std::set<std::size_t> had_full;       // ranges that already have a bucket of `limit` bytes
  std::map<std::size_t, Filling> open;  // for each range: the bucket that is being filled
  for (std::size_t i = 0; i < order.size(); ++i) {
    const ParameterPlace& place = order[i];
    Filling& filling = open[place.range];
    if (filling.bucket.segments.empty()) {
      const bool is_tail = had_full.contains(place.range);
      filling.limit = is_tail ? std::min(limit, std::max(small, to_come[place.range] / 2)) : limit;
    }
    to_come[place.range] -= place.bytes;
    filling.bucket.range = place.range;
    filling.bucket.segments.push_back(place.segment);
    filling.bytes += place.bytes;
    filling.complete = i;
    if (filling.bytes < (result.empty() ? std::min(limit, small) : filling.limit)) continue;
    if (filling.bytes >= limit) had_full.insert(place.range);
    close(filling);
    open.erase(place.range);
  }
  std::vector<Filling> rest;
  for (auto& [range, filling] : open) rest.push_back(std::move(filling));
  std::sort(rest.begin(), rest.end(), [](const Filling& a, const Filling& b) { return a.complete < b.complete; });
  for (Filling& filling : rest) close(filling);
  return result;
}

std::vector<BucketPlan> plan_ranges(const std::vector<ParameterPlace>& order) {
  std::vector<BucketPlan> plans;
  for (const ParameterPlace& place : order) {
    auto found =
        std::find_if(plans.begin(), plans.end(), [&](const BucketPlan& one) { return one.range == place.range; });
    BucketPlan plan = found == plans.end() ? BucketPlan{.range = place.range, .segments = {}} : std::move(*found);
    if (found != plans.end()) plans.erase(found);
    plan.segments.push_back(place.segment);
    plans.push_back(std::move(plan));
  }
  for (BucketPlan& plan : plans) std::sort(plan.segments.begin(), plan.segments.end());
  return plans;
}

}  // namespace reigen::parallel
