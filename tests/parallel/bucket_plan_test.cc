#include "parallel/exchange/bucket_plan.h"

#include <gmock/gmock.h>

#include <set>
#include <utility>

namespace reigen::parallel::bucket_plan_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

using Segments = std::vector<std::size_t>;
using Bucket = std::pair<std::size_t, Segments>;  // range, segments

std::vector<Bucket> plan(const std::vector<ParameterPlace>& order, std::size_t limit, std::size_t first_limit) {
  std::vector<Bucket> result;
  for (const BucketPlan& bucket : plan_buckets(order, limit, first_limit)) {
    result.emplace_back(bucket.range, bucket.segments);
  }
  return result;
}

// The places of parameters 0, 1, 2, ... in the order of completion, the last parameter first.
std::vector<ParameterPlace> from_the_end(const std::vector<std::size_t>& sizes) {
  std::vector<ParameterPlace> result;
  for (std::size_t i = sizes.size(); i-- > 0;) result.push_back({.range = 0, .segment = i, .bytes = sizes[i]});
  return result;
}

TEST(BucketPlan, FillsInTheOrderOfBackward) {
  EXPECT_THAT(plan(from_the_end({10, 10, 10, 10, 10}), 20, 20),
              ElementsAre(Bucket(0, {3, 4}), Bucket(0, {1, 2}), Bucket(0, {0})));
}

TEST(BucketPlan, TheFirstIsSmall) {
  EXPECT_THAT(plan(from_the_end({10, 10, 10, 10}), 15, 10),
              ElementsAre(Bucket(0, {3}), Bucket(0, {1, 2}), Bucket(0, {0})));
}

std::vector<std::size_t> bytes_of(const std::vector<std::size_t>& sizes, std::size_t limit, std::size_t small) {
  std::vector<std::size_t> result;
  for (const Bucket& bucket : plan(from_the_end(sizes), limit, small)) {
    std::size_t& bytes = result.emplace_back();
    for (const std::size_t segment : bucket.second) bytes += sizes[segment];
  }
  return result;
}

// After a full bucket, each bucket takes half of the rest, down to the size of the first bucket.
TEST(BucketPlan, TheLastAreSmallToo) {
  const std::vector<std::size_t> ones(34, 1);
  EXPECT_THAT(bytes_of(ones, 20, 2), ElementsAre(2, 20, 6, 3, 2, 1));
  EXPECT_THAT(bytes_of(ones, 10, 2), ElementsAre(2, 10, 10, 6, 3, 2, 1)) << "never more than the limit";
}

TEST(BucketPlan, WhatFitsIsOne) {
  const std::vector<std::size_t> ones(34, 1);
  for (const std::size_t limit : {32U, 33U, 100U}) EXPECT_THAT(bytes_of(ones, limit, 2), ElementsAre(2, 32)) << limit;
  EXPECT_THAT(bytes_of(ones, 31, 2), ElementsAre(2, 31, 1));
}

// The bytes of the gradients, in the order in which the recipe's model registers the parameters.
std::vector<std::size_t> gradients_of_resnet18() {
  std::vector<std::size_t> numbers{64 * 3 * 9, 64, 64};
  std::size_t before = 64;
  for (const std::size_t channels : {64U, 128U, 256U, 512U}) {
    for (int block = 0; block < 2; ++block) {
      numbers.insert(numbers.end(), {channels * before * 9, channels, channels});
      numbers.insert(numbers.end(), {channels * channels * 9, channels, channels});
      if (before != channels) numbers.insert(numbers.end(), {channels * before, channels, channels});
      before = channels;
    }
  }
  numbers.insert(numbers.end(), {512 * 10, 10});
  for (std::size_t& number : numbers) number *= sizeof(float);
  return numbers;
}

TEST(BucketPlan, SizesOfResnet18AreThoseAskedForAndTheLastOnesSmall) {
  constexpr std::size_t kMiB = 1 << 20;
  const auto of = [](std::size_t mib) { return bytes_of(gradients_of_resnet18(), mib * kMiB, kMiB); };
  const auto usual = of(25);
  ASSERT_GE(usual.size(), 4U);
  EXPECT_GE(usual[1], 25 * kMiB);
  EXPECT_LE(usual.back(), kMiB);
  EXPECT_LE(usual[usual.size() - 2], 2 * kMiB);
  // The first bucket is one parameter of 9 MiB, because a parameter is never cut.
  EXPECT_EQ(of(50).size(), 2U);
  EXPECT_EQ(of(50), of(100));
  std::set<std::vector<std::size_t>> plans;
  for (const std::size_t mib : {1U, 5U, 10U, 20U, 25U, 30U, 50U}) plans.insert(of(mib));
  EXPECT_EQ(plans.size(), 7U);
}

TEST(BucketPlan, AParameterIsNeverCut) {
  EXPECT_THAT(plan(from_the_end({1, 1000, 1}), 10, 10), ElementsAre(Bucket(0, {1, 2}), Bucket(0, {0})));
}

TEST(BucketPlan, ZeroMeansOneEach) {
  EXPECT_THAT(plan(from_the_end({4, 0, 4}), 0, 100), ElementsAre(Bucket(0, {2}), Bucket(0, {1}), Bucket(0, {0})));
}

TEST(BucketPlan, TypesDoNotMix) {
  const std::vector<ParameterPlace> order{{0, 2, 10}, {1, 1, 10}, {0, 1, 10}, {1, 0, 10}, {0, 0, 10}};
  EXPECT_THAT(plan(order, 20, 20), ElementsAre(Bucket(0, {1, 2}), Bucket(1, {0, 1}), Bucket(0, {0})));
  EXPECT_THAT(plan(order, 1000, 1000), ElementsAre(Bucket(1, {0, 1}), Bucket(0, {0, 1, 2})))
      << "the one that backward completes first goes first";
}

TEST(BucketPlan, NothingGivesNothing) { EXPECT_THAT(plan({}, 10, 10), IsEmpty()); }

TEST(BucketPlan, NeighboursInMemoryAreOneRun) {
  const auto runs = BucketPlan{.range = 0, .segments = {0, 1, 4, 6, 7, 8}}.runs();
  ASSERT_EQ(runs.size(), 3U);
  EXPECT_EQ(runs[0].last, 1U);
  EXPECT_EQ(runs[1].first, 4U);
  EXPECT_EQ(runs[1].last, 4U);
  EXPECT_EQ(runs[2].first, 6U);
  EXPECT_EQ(runs[2].last, 8U);
}

// For any order and sizes, every parameter is in one bucket. The last parameter of a bucket is complete before that of
// the next bucket.
TEST(BucketPlan, IsAPartitionInTheOrderOfCompletion) {
  std::size_t state = 12345;
  const auto next = [&state](std::size_t below) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    return (state >> 33) % below;
  };
  for (int round = 0; round < 300; ++round) {
    std::vector<ParameterPlace> order;
    std::size_t counts[3] = {};
    for (std::size_t i = next(20); i-- > 0;) {
      const std::size_t range = next(3);
      order.push_back({range, counts[range]++, next(40)});
    }
    for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[next(i)]);
    const std::size_t limit = next(100);
    const auto buckets = plan_buckets(order, limit, 10);
    std::set<std::pair<std::size_t, std::size_t>> seen;
    std::size_t complete = 0;
    for (std::size_t b = 0; b < buckets.size(); ++b) {
      std::size_t last = 0;
      std::size_t bytes = 0;
      for (const std::size_t segment : buckets[b].segments) {
        EXPECT_TRUE(seen.emplace(buckets[b].range, segment).second);
        for (std::size_t i = 0; i < order.size(); ++i) {
          if (order[i].range != buckets[b].range || order[i].segment != segment) continue;
          last = std::max(last, i);
          bytes += order[i].bytes;
        }
      }
      const bool full = bytes >= (b == 0 ? std::min<std::size_t>(limit, 10) : limit);
      if (full) {
        EXPECT_GE(last, complete);
        complete = last;
      }
    }
    EXPECT_EQ(seen.size(), order.size());
  }
}

}  // namespace
}  // namespace reigen::parallel::bucket_plan_test
