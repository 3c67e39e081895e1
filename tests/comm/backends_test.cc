#include <gmock/gmock.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "comm/contract.h"
#include "reigen/base/error.h"

namespace reigen::testing {

const auto kBackends = ::testing::Values(ContractParameter{"self", RankKind::kThreads, 1},
                                         ContractParameter{"shared_memory", RankKind::kThreads, 1},
                                         ContractParameter{"shared_memory", RankKind::kThreads, 2},
                                         ContractParameter{"shared_memory", RankKind::kThreads, 3},
                                         ContractParameter{"shared_memory", RankKind::kThreads, 4},
                                         ContractParameter{"shared_memory", RankKind::kThreads, 7});
INSTANTIATE_TEST_SUITE_P(Backends, CommunicatorContract, kBackends, name_of);
INSTANTIATE_TEST_SUITE_P(Backends, CommonMemoryContract, kBackends, name_of);

// Each algorithm, with all operations and sizes that it supports.
const auto kWays = ::testing::Values(ContractParameter{"shared_memory", RankKind::kThreads, 2, 0, "two_shot"},
                                     ContractParameter{"shared_memory", RankKind::kThreads, 3, 0, "two_shot"},
                                     ContractParameter{"shared_memory", RankKind::kThreads, 3, 0, "one_shot"},
                                     ContractParameter{"shared_memory", RankKind::kThreads, 3, 0, "fused"});
INSTANTIATE_TEST_SUITE_P(Ways, CommunicatorContract, kWays, name_of);
INSTANTIATE_TEST_SUITE_P(Ways, CommonMemoryContract, kWays, name_of);

namespace {

int cores() { return static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN)); }

std::string way_of(Rank& r, std::size_t count, bool foreign) {
  auto& world = r.world();
  TestBuffer<float> input(world, count, foreign);
  TestBuffer<float> output(world, count, foreign);
  for (std::size_t i = 0; i < count; ++i) input[i] = static_cast<float>(r.rank() + 1);
  world.all_reduce(input.data(), output.data(), count, DataType::kFloat32, ReduceOp::kSum);
  const auto sum = static_cast<float>(r.size() * (r.size() + 1) / 2);
  EXPECT_TRUE(elements_are(output, count, sum));
  return world.last_algorithm();
}

}  // namespace

TEST(Ways, TheUsualOnes) {
  run_ranks({.ranks = 2, .backend = "shared_memory"}, [](Rank& r) {
    EXPECT_EQ(way_of(r, 512, false), "one_shot");
    EXPECT_EQ(way_of(r, 513, false), cores() >= 2 ? "fused" : "one_shot");
    EXPECT_EQ(way_of(r, 513, true), cores() >= 2 ? "two_shot" : "one_shot");
    EXPECT_EQ(way_of(r, 4097, false), "fused");
    EXPECT_EQ(way_of(r, 4097, true), "two_shot");
  });
}

// The first calls of a size write their results with plain and with non-temporal stores in turn.
TEST(Ways, LargeCallsGiveTheSameBitsHoweverTheyAreWritten) {
  run_ranks({.ranks = 3, .backend = "shared_memory"}, [](Rank& r) {
    auto& world = r.world();
    constexpr std::size_t kBlock = 350003;  // elements of 4 bytes: a rank reads and writes more than 2 MiB per call
    const std::size_t whole = 3 * kBlock;
    const std::size_t own = static_cast<std::size_t>(r.rank()) * kBlock;
    const auto given = [](std::size_t rank, std::size_t i) { return 1.0F / static_cast<float>(3 * i + 7 * rank + 1); };
    TestBuffer<float> input(world, whole, false);
    for (std::size_t i = 0; i < whole; ++i) input[i] = given(own / kBlock, i);
    std::vector<float> sums(whole);
    for (std::size_t i = 0; i < whole; ++i) sums[i] = (given(0, i) + given(1, i)) + given(2, i);
    TestBuffer<float> output(world, whole, false);
    const auto same = [&](const float* expected, std::size_t count) {
      return std::memcmp(output.data(), expected, count * sizeof(float)) == 0;
    };
    std::vector<float> gathered(whole);
    for (std::size_t i = 0; i < whole; ++i) gathered[i] = given(i / kBlock, i % kBlock);
    for (int call = 0; call < 10; ++call) {
      std::fill(output.data(), output.data() + whole, -1.0F);
      world.all_reduce(input.data(), output.data(), whole, DataType::kFloat32, ReduceOp::kSum);
      ASSERT_TRUE(same(sums.data(), whole)) << "all_reduce " << call;
      world.reduce_scatter(input.data(), output.data(), kBlock, DataType::kFloat32, ReduceOp::kSum);
      ASSERT_TRUE(same(sums.data() + own, kBlock)) << "reduce_scatter " << call;
      world.all_gather(input.data(), output.data(), kBlock, DataType::kFloat32);
      ASSERT_TRUE(same(gathered.data(), whole)) << "all_gather " << call;
    }
  });
}

TEST(Ways, RanksThatShareCoresCarryMore) {
  const int ranks = cores() + 1;
  if (ranks > 16) GTEST_SKIP() << "with more than 16 ranks slots are small";
  run_ranks({.ranks = ranks, .backend = "shared_memory"}, [&](Rank& r) {
    EXPECT_EQ(way_of(r, 513, false), ranks <= 11 ? "one_shot" : "fused");
    // Makes 70 calls, more than there are slots, with the largest inputs that a slot can carry.
    const auto sum = static_cast<float>(ranks * (ranks + 1) / 2);
    std::vector<float> x(4096);
    for (int call = 0; call < 70; ++call) {
      if (call % 10 == r.rank()) std::this_thread::sleep_for(std::chrono::milliseconds(2));
      std::fill(x.begin(), x.end(), static_cast<float>(r.rank() + 1));
      r.world().reduce(x.data(), x.data(), x.size(), DataType::kFloat32, ReduceOp::kSum, 0);
      EXPECT_EQ(r.world().last_algorithm(), "one_shot");
      ASSERT_TRUE(elements_are(x, x.size(), r.rank() == 0 ? sum : static_cast<float>(r.rank() + 1)));
    }
    // A group that is split off shares the cores of its parent.
    auto part = r.world().split(r.rank() < 2 ? 0 : -1);
    if (!part) return;
    std::vector<float> y(2000, 1.0F);
    part->broadcast(y.data(), y.size(), DataType::kFloat32, 0);
    EXPECT_EQ(part->last_algorithm(), "one_shot");
  });
}

TEST(Ways, RulesChooseThem) {
  const std::string rules = "all_reduce:one_shot,all_reduce:two_shot@<1M,all_reduce:fused";
  run_ranks({.ranks = 2, .backend = "shared_memory", .algorithms = rules}, [](Rank& r) {
    EXPECT_EQ(way_of(r, 512, false), "one_shot");
    EXPECT_EQ(way_of(r, 513, false), cores() >= 2 ? "two_shot" : "one_shot");
    EXPECT_EQ(way_of(r, 4097, false), "two_shot");
    EXPECT_EQ(way_of(r, 300000, false), "fused");
    EXPECT_EQ(way_of(r, 300000, true), "two_shot");
  });
  run_ranks({.ranks = 2, .backend = "auto", .algorithms = "all_reduce:fused,all_reduce:ring"}, [](Rank& r) {
    EXPECT_EQ(way_of(r, 1, false), "fused");
    EXPECT_EQ(way_of(r, 1, true), "two_shot");
    EXPECT_EQ(way_of(r, 0, true), "fused");
  });
}

// A staged call among other calls, which begin before all ranks have ended the previous call.
TEST(Ways, TakeTurns) {
  run_ranks({.ranks = 3, .backend = "shared_memory", .algorithms = "all_reduce:two_shot@>40K"}, [](Rank& r) {
    auto& world = r.world();
    constexpr std::size_t kCount = 30000;
    TestBuffer<std::int32_t> data(world, kCount, false);
    for (std::size_t i = 0; i < kCount; ++i) data[i] = 1;
    std::vector<Work> works;
    for (int k = 0; k < 12; ++k) {
      const std::size_t count = k % 3 == 1 ? kCount : 9000;
      works.push_back(world.start_all_reduce(data.data(), data.data(), count, DataType::kInt32, ReduceOp::kMax));
      works.push_back(
          world.start_all_reduce(data.data() + 10000, data.data() + 10000, 9000, DataType::kInt32, ReduceOp::kSum));
    }
    for (const Work& work : works) work.wait();
    EXPECT_EQ(data[0], 1);
    EXPECT_EQ(data[10000], 531441);
    EXPECT_EQ(data[29999], 1);
  });
}

TEST(Ways, RanksThatChooseDifferentlyAreToldSo) {
  run_ranks({.ranks = 2}, [](Rank& r) {
    Communicator world({.rank = r.rank(),
                        .size = 2,
                        .store = store::make_prefix_store(std::shared_ptr<store::Store>(&r.store(), [](auto*) {}), "g"),
                        .backend = "shared_memory",
                        .algorithms = r.rank() == 0 ? "all_reduce:two_shot" : ""});
    std::vector<float> x(10);
    try {
      world.all_reduce(x.data(), x.data(), x.size(), DataType::kFloat32, ReduceOp::kSum);
      ADD_FAILURE() << "not noticed";
    } catch (const CollectiveMismatch& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr("differ in the algorithm"));
    }
  });
}

}  // namespace reigen::testing
