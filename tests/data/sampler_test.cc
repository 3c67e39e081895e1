#include "reigen/data/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <vector>

#include "reigen/base/error.h"

namespace reigen::data::sampler_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::int64_t> listed(const Order& order, std::int64_t size) {
  std::vector<std::int64_t> indices;
  for (std::int64_t p = 0; p < size; ++p) indices.push_back(order[p]);
  return indices;
}

std::vector<std::int64_t> counted(std::int64_t size) {
  std::vector<std::int64_t> indices(static_cast<std::size_t>(size));
  std::iota(indices.begin(), indices.end(), 0);
  return indices;
}

TEST(ShareOf, SharesTileTheRangeAndDifferByAtMostOne) {
  for (const std::int64_t count : {0, 1, 2, 3, 7, 64, 97, 128, 1000}) {
    for (const int ranks : {1, 2, 3, 4, 5, 7, 64}) {
      std::int64_t expected = 11;
      for (int rank = 0; rank < ranks; ++rank) {
        const Range share = share_of({11, 11 + count}, rank, ranks);
        EXPECT_EQ(share.begin, expected);
        EXPECT_EQ(share.end, 11 + count * (rank + 1) / ranks);
        EXPECT_GE(share.count(), count / ranks);
        EXPECT_LE(share.count(), (count + ranks - 1) / ranks);
        expected = share.end;
      }
      EXPECT_EQ(expected, 11 + count);
    }
  }
}

TEST(ShareOf, HugeRangesDoNotOverflow) {
  constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(share_of({0, kHuge}, 1023, 1024).end, kHuge);
  EXPECT_EQ(share_of({0, kHuge}, 0, 2).end, kHuge / 2);
}

TEST(Order, IsAPermutation) {
  for (const std::int64_t size : {1, 2, 3, 10, 1000, 60'000}) {
    auto indices = listed(Order(size, true, 5, 3), size);
    if (size >= 10) {
      EXPECT_NE(indices, counted(size));
    }
    std::sort(indices.begin(), indices.end());
    EXPECT_EQ(indices, counted(size));
  }
  EXPECT_EQ(listed(Order(10, false, 5, 3), 10), counted(10));
}

// These values must never change, because a run that is resumed with a later version must see the same order.
TEST(Order, KnownValues) {
  EXPECT_THAT(listed(Order(10, true, 0, 0), 10), ElementsAre(8, 5, 1, 4, 6, 3, 2, 7, 0, 9));
  EXPECT_THAT(listed(Order(10, true, 0, 1), 10), ElementsAre(4, 0, 1, 9, 6, 5, 2, 8, 7, 3));
  EXPECT_THAT(listed(Order(10, true, 1ull << 40, 0), 10), ElementsAre(7, 0, 1, 3, 5, 2, 8, 9, 6, 4));
}

TEST(Order, SeedAndEpochChangeIt) {
  const auto base = listed(Order(1000, true, 1, 1), 1000);
  EXPECT_EQ(listed(Order(1000, true, 1, 1), 1000), base);
  EXPECT_NE(listed(Order(1000, true, 2, 1), 1000), base);
  EXPECT_NE(listed(Order(1000, true, 1, 2), 1000), base);
  EXPECT_NE(listed(Order(1000, true, 1 | 1ull << 32, 1), 1000), base);
}

// Chi-square of the places of sample 0 and sample 7 of 8 over 8000 epochs: 7 degrees of freedom, p = 1e-6 at 41.
TEST(Order, EveryPlaceIsAsLikely) {
  constexpr int kEpochs = 8000;
  std::vector<std::vector<int>> hits(8, std::vector<int>(8, 0));
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    const Order order(8, true, 42, epoch);
    for (std::size_t p = 0; p < 8; ++p) ++hits[static_cast<std::size_t>(order[static_cast<std::int64_t>(p)])][p];
  }
  for (const auto& sample : hits) {
    double chi2 = 0;
    for (const int hit : sample) chi2 += (hit - kEpochs / 8.0) * (hit - kEpochs / 8.0) / (kEpochs / 8.0);
    EXPECT_LT(chi2, 41);
  }
}

TEST(Sampler, StepsAndPositions) {
  const Sampler all({.size = 10, .global_batch = 4});
  EXPECT_EQ(all.steps(), 3);
  EXPECT_EQ(all.positions(0, 0), (Range{0, 4}));
  EXPECT_EQ(all.positions(0, 2), (Range{8, 10}));
  EXPECT_EQ(all.steps(3), 2);
  EXPECT_EQ(all.positions(3, 1), (Range{7, 10}));
  EXPECT_EQ(all.steps(10), 0);
  const Sampler full({.size = 10, .global_batch = 4, .drop_last = true});
  EXPECT_EQ(full.steps(), 2);
  EXPECT_EQ(full.steps(3), 1);
  EXPECT_EQ(full.steps(8), 0);
  const Sampler huge({.size = 10, .global_batch = std::numeric_limits<std::int64_t>::max()});
  EXPECT_EQ(huge.steps(), 1);
  EXPECT_EQ(huge.positions(0, 0), (Range{0, 10}));
}

TEST(Sampler, RefusesWhatMakesNoSense) {
  EXPECT_THROW(Sampler({.size = 10, .global_batch = 0}), InvalidArgument);
  EXPECT_THROW(Sampler({.size = 10, .global_batch = -1}), InvalidArgument);
  EXPECT_THROW(Sampler({.size = 0, .global_batch = 1}), DataError);
  const Sampler sampler({.size = 10, .global_batch = 4});
  EXPECT_THROW(sampler.order(-1), InvalidArgument);
  EXPECT_THROW(sampler.steps(-1), InvalidArgument);
  EXPECT_THROW(sampler.steps(11), InvalidArgument);
  EXPECT_THROW(sampler.positions(0, 3), InvalidArgument);
  EXPECT_THROW(sampler.positions(0, -1), InvalidArgument);
  try {
    Sampler({.size = 10, .global_batch = 11, .drop_last = true});
    FAIL();
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(), HasSubstr("10 samples"));
    EXPECT_THAT(error.what(), HasSubstr("global batch of 11"));
  }
}

}  // namespace
}  // namespace reigen::data::sampler_test
