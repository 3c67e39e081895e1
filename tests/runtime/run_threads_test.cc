#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include <stdexcept>

#include <csignal>

#include <atomic>

#include "reigen/base/error.h"
#include "reigen/runtime/init.h"

namespace reigen {
namespace {

using ::testing::HasSubstr;

TEST(RunThreads, EveryRankRunsOnceInOneAddressSpace) {
  std::atomic<int> sum{0};
  run_threads(4, [&](Communicator& world) {
    EXPECT_EQ(world.size(), 4);
    sum += world.rank() + 1;
    world.barrier();
    EXPECT_EQ(sum.load(), 10);
  });
}

TEST(RunThreads, OneRankWorksAlone) {
  run_threads(1, [](Communicator& world) {
    float x = 3.0f;
    world.all_reduce(&x, &x, 1, DataType::kFloat32, ReduceOp::kSum);
    EXPECT_EQ(x, 3.0f);
  });
}

// The other ranks wait in a barrier. run_threads throws the cause, and not their errors that follow from it.
TEST(RunThreads, TheFirstFailureEndsTheOthers) {
  for (int round = 0; round < 20; ++round) {
    try {
      run_threads(4, [](Communicator& world) {
        if (world.rank() == 2) throw std::runtime_error("out of ideas");
        world.barrier();
        world.barrier();
      });
      FAIL();
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("rank 2"));
      EXPECT_THAT(error.what(), HasSubstr("out of ideas"));
      EXPECT_EQ(error.exit_code(), ExitCode::kBug);
    }
  }
}

TEST(RunThreads, ErrorsKeepTheirType) {
  EXPECT_THROW(run_threads(3,
                           [](Communicator& world) {
                             if (world.rank() == 1) throw DataError("bad file");
                             world.barrier();
                           }),
               DataError);
}

TEST(RunThreads, BadNumberOfRanks) {
  EXPECT_THROW(run_threads(0, [](Communicator&) {}), InvalidArgument);
}

TEST(Init, AloneIsARankOfOne) {
  Communicator world = init();
  EXPECT_EQ(world.size(), 1);
  EXPECT_EQ(world.backend(), "self");
}

TEST(Init, ABadTimeoutIsRefused) {
  for (const char* bad : {"x", "0", "-1", "1s", "nan"}) {
    ::setenv("REIGEN_TIMEOUT", bad, 1);
    EXPECT_THROW(init(), InvalidArgument) << bad;
  }
  ::unsetenv("REIGEN_TIMEOUT");
}

TEST(InitDeathTest, AnErrorThatNobodyCatchesEndsWithItsCode) {
  const auto throw_uncaught = [](const auto& error) {
    const auto world = init();
    std::thread([&] { throw error; }).join();
  };
  EXPECT_EXIT(throw_uncaught(DataError("torn")), ::testing::ExitedWithCode(static_cast<int>(ExitCode::kBadData)),
              "error: torn");
  EXPECT_EXIT(throw_uncaught(InvalidArgument("no such thing")),
              ::testing::ExitedWithCode(static_cast<int>(ExitCode::kConfiguration)), "error: no such thing");
  EXPECT_EXIT(throw_uncaught(std::runtime_error("of others")), ::testing::KilledBySignal(SIGABRT), "of others");
}

}  // namespace
}  // namespace reigen
