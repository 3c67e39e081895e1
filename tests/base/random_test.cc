#include "reigen/base/random.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

namespace reigen {
namespace {

TEST(Random, IsAFunctionOfSeedEpochSampleAndPlace) {
  const Random::Of of{.seed = 7, .epoch = 3, .sample = 1009, .place = 2};
  Random one(of);
  Random two(of);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(one.next(), two.next());
  std::set<std::uint64_t> firsts;
  for (const auto& other : {of, Random::Of{8, 3, 1009, 2}, Random::Of{7, 4, 1009, 2}, Random::Of{7, 3, 1010, 2},
                            Random::Of{7, 3, 1009, 3}}) {
    Random random(other);
    firsts.insert(random.next() | std::uint64_t{random.next()} << 32);
  }
  EXPECT_EQ(firsts.size(), 5U);
}

TEST(Random, HasTheMomentsOfItsDistributions) {
  double uniform_sum = 0;
  double normal_sum = 0;
  double squares = 0;
  int below_three[3] = {};
  int heads = 0;
  const int count = 40'000;
  for (int i = 0; i < count; ++i) {
    Random random({.seed = 1, .epoch = 0, .sample = i, .place = 1});
    uniform_sum += random.uniform(2, 4);
    const double normal = random.normal();
    normal_sum += normal;
    squares += normal * normal;
    ++below_three[random.below(3)];
    heads += random.chance(0.25) ? 1 : 0;
  }
  EXPECT_NEAR(uniform_sum / count, 3, 0.02);
  EXPECT_NEAR(normal_sum / count, 0, 0.03);
  EXPECT_NEAR(squares / count, 1, 0.04);
  for (const int seen : below_three) EXPECT_NEAR(seen, count / 3.0, 5 * std::sqrt(count / 3.0));
  EXPECT_NEAR(heads, count / 4.0, 5 * std::sqrt(count / 4.0));
}

}  // namespace
}  // namespace reigen
