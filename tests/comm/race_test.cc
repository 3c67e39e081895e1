// Proves that the race detector works on shared memory: two ranks as threads write one word without an order. This test
// is built only under ThreadSanitizer, which must report the race.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

#include "harness/ranks.h"

namespace reigen::testing {
namespace {

void write_without_order(Rank& r) {
  static std::atomic<float*> shared{nullptr};
  std::shared_ptr<void> block;
  if (r.rank() == 0) {
    block = r.world().allocate(64);
    shared = static_cast<float*>(block.get());
  }
  r.world().barrier();
  // One write would not do: on a busy machine a rank may wake up in the first barrier only after the other rank has
  // entered the second one, and then the barriers order the two writes.
  for (int write = 0; write < 50; ++write) {
    *shared.load() = static_cast<float>(r.rank());
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  r.world().barrier();
}

TEST(RaceDeathTest, APlantedRaceIsReported) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        for (int round = 0; round < 5; ++round) run_ranks({.ranks = 2}, write_without_order);
      },
      "data race");
}

}  // namespace
}  // namespace reigen::testing
