// Several calls of one hierarchical group in flight.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "comm/hierarchical/hierarchical_backend.h"
#include "comm/tcp_groups.h"
#include "reigen/base/error.h"

namespace reigen::testing {
namespace {

using comm::Call;
using comm::Operation;
using comm::OperationKind;
using comm::Step;

Call sum_of(std::vector<float>& data) {
  return {.kind = OperationKind::kAllReduce,
          .input = data.data(),
          .output = data.data(),
          .count = data.size(),
          .type = DataType::kFloat32,
          .op = ReduceOp::kSum};
}

// Without an engine. Each of two machines has one rank. Both ranks drive the first call until it waits for the network,
// and then only the second call. What the kernel holds of the first call cannot be the whole of it.
TEST(HierarchicalLanes, ACallMovesWhileTheOneBeforeItWaits) {
  run_ranks({.ranks = 2}, [](Rank& r) {
    constexpr std::size_t kCount = std::size_t{12} << 20;
    comm::GroupOptions options = options_of(r);
    options.backend = "hierarchical";
    options.machine_id = std::to_string(r.rank());
    const auto backend = comm::hierarchical::make_backend(options);
    std::vector<float> long_data(kCount, static_cast<float>(r.rank() + 1));
    std::vector<float> data(1000, static_cast<float>(r.rank() + 1));
    const Call calls[] = {sum_of(long_data), sum_of(data), sum_of(data)};
    std::vector<std::unique_ptr<Operation>> operations;
    for (std::uint64_t i = 0; i < 3; ++i) operations.push_back(backend->start(calls[i], i));
    ASSERT_TRUE(operations[0]->try_post());
    ASSERT_TRUE(operations[1]->try_post());
    EXPECT_FALSE(operations[2]->try_post()) << "both lanes are taken";
    while (operations[0]->advance() == Step::kMoved) {
    }
    EXPECT_TRUE(comes_true([&] {
      EXPECT_NE(operations[1]->advance(), Step::kDone) << "it completes after the one before it";
      return data.front() == 3 && data.back() == 3;
    }));
    EXPECT_EQ(long_data.back(), static_cast<float>(r.rank() + 1));
    for (std::size_t i = 0; i < 3; ++i) {
      if (i == 2) {
        ASSERT_TRUE(operations[i]->try_post());
      }
      bool done = false;
      ASSERT_TRUE(comes_true([&] { return done = done || operations[i]->advance() == Step::kDone; }));
    }
    EXPECT_EQ(long_data, std::vector<float>(kCount, 3));
    EXPECT_EQ(data, std::vector<float>(1000, 6));
    meet(r, "done");
    backend->leave();
  });
}

// Calls of all kinds and sizes, as many in flight as there are lanes, on machines with several ranks.
TEST(HierarchicalLanes, ManyCallsInFlightGiveWhatOneAtATimeGives) {
  run_ranks({.ranks = 5, .backend = "hierarchical", .machines = 2}, [](Rank& r) {
    const Communicator& world = r.world();
    const auto p = static_cast<std::size_t>(r.size());
    for (int round = 0; round < 20; ++round) {
      std::vector<std::vector<float>> sums;
      std::vector<std::vector<float>> gathered;
      for (const std::size_t count : {1U, 5000U, 100003U, 7U, 20000U}) {
        sums.emplace_back(count, static_cast<float>(r.rank()));
        gathered.emplace_back(count * p);
      }
      std::vector<Work> works;
      std::vector<float> roots(sums.size(), r.rank() == 1 ? 7.0F : 0.0F);
      for (std::size_t i = 0; i < sums.size(); ++i) {
        std::vector<float>& sum = sums[i];
        works.push_back(world.start_all_reduce(sum.data(), sum.data(), sum.size(), DataType::kFloat32, ReduceOp::kSum));
        works.push_back(world.start_broadcast(&roots[i], 1, DataType::kFloat32, 1));
        works.push_back(world.start_barrier());
        // It reads what the sum above writes, so it must wait for it.
        works.push_back(world.start_all_gather(sum.data(), gathered[i].data(), sum.size(), DataType::kFloat32));
      }
      for (const Work& work : works) work.wait();
      for (std::size_t i = 0; i < sums.size(); ++i) {
        ASSERT_EQ(gathered[i], std::vector<float>(sums[i].size() * p, 10));
        ASSERT_EQ(roots[i], 7);
      }
    }
  });
}

// The last rank completes the first call, then ends the group and never makes the second.
TEST(HierarchicalLanes, AnEndAfterTheFirstCallIsNoneOfIt) {
  for (int round = 0; round < 5; ++round) {
    run_ranks({.ranks = 4, .backend = "hierarchical", .machines = 2}, [](Rank& r) {
      const Communicator& world = r.world();
      std::vector<float> first(5000, 1);
      std::vector<float> second(5000, 1);
      if (r.rank() == 3) {
        world.all_reduce(first.data(), first.data(), first.size(), DataType::kFloat32, ReduceOp::kSum);
        world.abort("because");
        return;
      }
      const Work one =
          world.start_all_reduce(first.data(), first.data(), first.size(), DataType::kFloat32, ReduceOp::kSum);
      const Work two =
          world.start_all_reduce(second.data(), second.data(), second.size(), DataType::kFloat32, ReduceOp::kSum);
      try {
        one.wait();
        EXPECT_EQ(first, std::vector<float>(5000, 4));
      } catch (const Error& error) {
        ADD_FAILURE() << "rank " << r.rank() << ": " << error.what();
      }
      EXPECT_THROW(two.wait(), Aborted);
    });
  }
}

}  // namespace
}  // namespace reigen::testing
