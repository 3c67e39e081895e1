#include "comm/shared_memory/store_choice.h"

#include <gtest/gtest.h>

#include <vector>

namespace reigen::comm::shared_memory {
namespace {

using std::chrono::nanoseconds;

// Makes passes of a megabyte, with these times for plain and for non-temporal stores. Returns the choices.
std::vector<bool> ways_of(StoreChoice& choice, int passes, bool guess, int plain_ns, int past_ns) {
  std::vector<bool> ways;
  for (int i = 0; i < passes; ++i) {
    ways.push_back(choice.past_caches(guess));
    choice.took(nanoseconds(ways.back() ? past_ns : plain_ns), 1 << 20);
  }
  return ways;
}

TEST(StoreChoice, TriesBothWaysAndKeepsTheFaster) {
  for (const bool guess : {false, true}) {
    for (const bool past_is_faster : {false, true}) {
      StoreChoice choice;
      const int plain = past_is_faster ? 200 : 100;
      const auto ways = ways_of(choice, 40, guess, plain, 300 - plain);
      const std::vector<bool> first(ways.begin(), ways.begin() + 7);
      EXPECT_EQ(first, (std::vector<bool>{guess, guess, !guess, guess, !guess, guess, !guess}));
      EXPECT_EQ(std::vector<bool>(ways.begin() + 7, ways.end()), std::vector<bool>(33, past_is_faster));
    }
  }
}

TEST(StoreChoice, KeepsTheGuessUnlessTheOtherIsAnEighthFaster) {
  StoreChoice little;
  EXPECT_FALSE(ways_of(little, 8, false, 100, 90).back());
  StoreChoice enough;
  EXPECT_TRUE(ways_of(enough, 8, false, 100, 85).back());
}

TEST(StoreChoice, OneSlowPassOfThreeAndTheFirstDecideNothing) {
  StoreChoice choice;
  for (int i = 0; i < 7; ++i) {
    const bool past = choice.past_caches(false);
    const bool hiccup = i == 0 || i == 1 || i == 4;  // passes 0 and 1 use plain stores, pass 4 non-temporal ones
    choice.took(nanoseconds((past ? 200 : 100) * (hiccup ? 50 : 1)), 1 << 20);
  }
  EXPECT_FALSE(choice.past_caches(false));
}

TEST(StoreChoice, NoticesAMachineThatChanges) {
  StoreChoice choice;
  EXPECT_FALSE(ways_of(choice, 60, false, 100, 200).back());
  const auto after = ways_of(choice, 100, false, 300, 200);
  EXPECT_TRUE(after.back());
}

TEST(StoreChoice, TriesALosingWayLessAndLessOften) {
  StoreChoice choice;
  ways_of(choice, 7, false, 100, 400);
  int tried = 0;
  for (const bool past : ways_of(choice, 20000, false, 100, 400)) tried += past ? 1 : 0;
  EXPECT_GE(tried, 3 * 7);   // trials after 64, 128, ... 4096 passes
  EXPECT_LE(tried, 3 * 10);  // and then after every 4096
}

TEST(StoreChoice, SizesOfOnePowerOfTwoAreOneClass) {
  StoreChoices choices;
  using Work = StoreChoices::Work;
  EXPECT_EQ(&choices.of(Work::kSum, 4 << 20), &choices.of(Work::kSum, (8 << 20) - 1));
  EXPECT_NE(&choices.of(Work::kSum, 4 << 20), &choices.of(Work::kSum, 8 << 20));
  EXPECT_NE(&choices.of(Work::kSum, 4 << 20), &choices.of(Work::kCopy, 4 << 20));
  EXPECT_NO_THROW(choices.of(Work::kSum, SIZE_MAX).past_caches(true));
}

}  // namespace
}  // namespace reigen::comm::shared_memory
