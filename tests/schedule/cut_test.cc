// Cuts of units into stages: compared with all possible cuts.
#include "reigen/schedule/cut.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>

#include "base/philox.h"
#include "reigen/base/error.h"

namespace reigen::schedule {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

double largest(const std::vector<double>& costs, const std::vector<std::size_t>& first) {
  double most = 0;
  for (std::size_t s = 0; s < first.size(); ++s) {
    const std::size_t end = s + 1 < first.size() ? first[s + 1] : costs.size();
    most = std::max(most, std::accumulate(costs.begin() + static_cast<std::ptrdiff_t>(first[s]),
                                          costs.begin() + static_cast<std::ptrdiff_t>(end), 0.0));
  }
  return most;
}

double best_of_all(const std::vector<double>& costs, int stages) {
  double best = std::numeric_limits<double>::infinity();
  std::vector<std::size_t> first{0};
  const std::function<void()> extend = [&] {
    if (first.size() == static_cast<std::size_t>(stages)) {
      best = std::min(best, largest(costs, first));
      return;
    }
    for (std::size_t next = first.back() + 1; next < costs.size(); ++next) {
      first.push_back(next);
      extend();
      first.pop_back();
    }
  };
  extend();
  return best;
}

TEST(Cut, TheLargestStageIsAsSmallAsPossible) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const std::size_t units = 1 + seed % 9;
    std::vector<double> costs;
    for (std::size_t i = 0; i < units; ++i) {
      costs.push_back(static_cast<double>(base::philox(seed, i)[0] % 20));
    }
    for (int stages = 1; stages <= static_cast<int>(units); ++stages) {
      const std::vector<std::size_t> first = cut(costs, stages);
      ASSERT_EQ(first.size(), static_cast<std::size_t>(stages));
      EXPECT_EQ(first.front(), 0U);
      EXPECT_TRUE(std::is_sorted(first.begin(), first.end()));
      EXPECT_EQ(std::adjacent_find(first.begin(), first.end()), first.end());
      EXPECT_LT(first.back(), units);
      EXPECT_EQ(largest(costs, first), best_of_all(costs, stages)) << "seed " << seed << ", " << stages << " stages";
    }
  }
}

TEST(Cut, EqualUnits) {
  EXPECT_THAT(cut({1, 1, 1, 1, 1, 1}, 3), ElementsAre(0, 2, 4));
  EXPECT_THAT(cut({1, 1, 1, 1, 1}, 2), ElementsAre(0, 2));
  EXPECT_THAT(cut({0, 0, 0}, 3), ElementsAre(0, 1, 2));
}

TEST(Cut, WrongNumbersAreRefused) {
  const auto refusal = [](const std::vector<double>& costs, int stages) {
    try {
      cut(costs, stages);
    } catch (const InvalidArgument& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(refusal({1, 1}, 3), HasSubstr("2 units, 3 stages"));
  EXPECT_THAT(refusal({1, 1}, 0), HasSubstr("2 units, 0 stages"));
  EXPECT_THAT(refusal({}, 1), HasSubstr("0 units"));
  EXPECT_THAT(refusal({1, -1}, 1), HasSubstr("cost of unit 1"));
  EXPECT_THAT(refusal({1, std::numeric_limits<double>::quiet_NaN()}, 1), HasSubstr("cost of unit 1"));
}

}  // namespace
}  // namespace reigen::schedule
