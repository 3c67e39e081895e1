#include "parallel/bucket_plan.h"

#include <gmock/gmock.h>

#include <tuple>

namespace reigen::parallel {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

using Bucket = std::tuple<std::size_t, std::size_t, std::size_t>;  // range, first, last

std::vector<Bucket> plan(const std::vector<ParameterPlace>& places, std::size_t limit, std::size_t first_limit) {
  std::vector<Bucket> result;
  for (const BucketPlan& bucket : plan_buckets(places, limit, first_limit)) {
    result.emplace_back(bucket.range, bucket.first, bucket.last);
  }
  return result;
}

std::vector<ParameterPlace> of_sizes(const std::vector<std::size_t>& sizes) {
  std::vector<ParameterPlace> result;
  for (std::size_t i = 0; i < sizes.size(); ++i) result.push_back({.range = 0, .segment = i, .bytes = sizes[i]});
  return result;
}

TEST(BucketPlan, FillsFromTheEnd) {
  EXPECT_THAT(plan(of_sizes({10, 10, 10, 10, 10}), 20, 20),
              ElementsAre(Bucket(0, 3, 4), Bucket(0, 1, 2), Bucket(0, 0, 0)));
}

TEST(BucketPlan, TheFirstIsSmall) {
  EXPECT_THAT(plan(of_sizes({10, 10, 10, 10}), 30, 10), ElementsAre(Bucket(0, 3, 3), Bucket(0, 0, 2)));
}

TEST(BucketPlan, AParameterIsNeverCut) {
  EXPECT_THAT(plan(of_sizes({1, 1000, 1}), 10, 10), ElementsAre(Bucket(0, 1, 2), Bucket(0, 0, 0)));
}

TEST(BucketPlan, ZeroMeansOneEach) {
  EXPECT_THAT(plan(of_sizes({4, 0, 4}), 0, 100), ElementsAre(Bucket(0, 2, 2), Bucket(0, 1, 1), Bucket(0, 0, 0)));
}

TEST(BucketPlan, TypesDoNotMix) {
  const std::vector<ParameterPlace> places{{0, 0, 10}, {1, 0, 10}, {0, 1, 10}, {1, 1, 10}, {0, 2, 10}};
  EXPECT_THAT(plan(places, 20, 20), ElementsAre(Bucket(0, 1, 2), Bucket(1, 0, 1), Bucket(0, 0, 0)));
  EXPECT_THAT(plan(places, 1000, 1000), ElementsAre(Bucket(1, 0, 1), Bucket(0, 0, 2)))
      << "the one that backward completes first goes first";
}

TEST(BucketPlan, NothingGivesNothing) { EXPECT_THAT(plan({}, 10, 10), IsEmpty()); }

}  // namespace
}  // namespace reigen::parallel
