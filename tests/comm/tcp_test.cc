// The contract over TCP, and what only this backend has: a choice of algorithms, connections, strangers.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "comm/contract.h"
#include "comm/schedule/table.h"
#include "reigen/base/error.h"

namespace reigen::testing {

INSTANTIATE_TEST_SUITE_P(Tcp, CommunicatorContract,
                         ::testing::Values(ContractParameter{"tcp", RankKind::kThreads, 1},
                                           ContractParameter{"tcp", RankKind::kThreads, 2},
                                           ContractParameter{"tcp", RankKind::kThreads, 3},
                                           ContractParameter{"tcp", RankKind::kThreads, 4}),
                         name_of);

namespace {

using comm::OperationKind;
using ::testing::HasSubstr;

void reduce_and_compare(Rank& r, std::size_t count) {
  auto& world = r.world();
  const auto p = static_cast<std::size_t>(r.size());
  std::vector<float> x(count);
  for (std::size_t i = 0; i < count; ++i) x[i] = static_cast<float>(static_cast<std::size_t>(r.rank() + 1) * (i % 7));
  world.all_reduce(x.data(), x.data(), count, DataType::kFloat32, ReduceOp::kSum);
  for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(x[i], static_cast<float>(p * (p + 1) / 2 * (i % 7))) << i;
  const int root = r.size() - 1;
  std::vector<float> sum(count);
  world.reduce(x.data(), r.rank() == root ? sum.data() : nullptr, count, DataType::kFloat32, ReduceOp::kSum, root);
  for (std::size_t i = 0; r.rank() == root && i < count; ++i) ASSERT_EQ(sum[i], static_cast<float>(p) * x[i]) << i;
  std::vector<float> blocks(count * p, static_cast<float>(r.rank()));
  std::vector<float> block(count);
  world.reduce_scatter(blocks.data(), block.data(), count, DataType::kFloat32, ReduceOp::kMax);
  for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(block[i], static_cast<float>(p - 1));
}

void move_and_compare(Rank& r, std::size_t count) {
  auto& world = r.world();
  const auto p = static_cast<std::size_t>(r.size());
  std::vector<float> x(count, r.rank() == 0 ? 5.0f : 0.0f);
  world.broadcast(x.data(), count, DataType::kFloat32, 0);
  for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(x[i], 5.0f);
  std::vector<float> own(count, static_cast<float>(r.rank()));
  std::vector<float> all(count * p);
  world.all_gather(own.data(), all.data(), count, DataType::kFloat32);
  for (std::size_t i = 0; i < count * p; ++i) ASSERT_EQ(all[i], static_cast<float>(i / count));
  world.barrier();
}

TEST(TcpAlgorithms, EachGivesTheSameOverRealConnections) {
  constexpr OperationKind kKinds[] = {OperationKind::kAllReduce, OperationKind::kReduceScatter,
                                      OperationKind::kAllGather, OperationKind::kBroadcast,
                                      OperationKind::kReduce,    OperationKind::kBarrier};
  for (const OperationKind kind : kKinds) {
    for (const auto& algorithm : comm::schedule::algorithms(kind)) {
      for (const int segments : {0, 1, 7}) {
        SCOPED_TRACE(algorithm.name);
        run_ranks({.ranks = 3,
                   .backend = "tcp",
                   .algorithms = fmt::format("{}:{}", comm::name_of(kind), algorithm.name),
                   .segments = segments},
                  [](Rank& r) {
                    for (const std::size_t count : {1U, 1000U, 200003U}) {
                      reduce_and_compare(r, count);
                      move_and_compare(r, count);
                    }
                  });
      }
    }
  }
}

TEST(TcpAlgorithms, RanksThatChooseDifferentlyAreToldSo) {
  run_ranks({.ranks = 2}, [](Rank& r) {
    comm::GroupOptions group{
        .rank = r.rank(),
        .size = 2,
        .store = store::make_prefix_store(std::shared_ptr<store::Store>(&r.store(), [](auto*) {}), "g"),
        .backend = "tcp",
        .algorithms = r.rank() == 0 ? "all_reduce:ring" : "all_reduce:halving_doubling"};
    Communicator world(group);
    std::vector<float> x(1000);
    try {
      world.all_reduce(x.data(), x.data(), x.size(), DataType::kFloat32, ReduceOp::kSum);
      ADD_FAILURE() << "not noticed";
    } catch (const CollectiveMismatch& error) {
      EXPECT_THAT(error.what(), HasSubstr("algorithm"));
    }
  });
}

TEST(TcpConnections, LargeMessagesAreDividedAmongThem) {
  run_ranks({.ranks = 3, .backend = "tcp", .connections = 3}, [](Rank& r) {
    for (const std::size_t count : {1U, 1000U, 500009U}) {
      reduce_and_compare(r, count);
      move_and_compare(r, count);
    }
  });
}

TEST(TcpAlgorithms, OtherBackendsHaveNoChoice) {
  EXPECT_THROW(Communicator({.backend = "self", .algorithms = "all_reduce:ring"}), InvalidArgument);
}

}  // namespace
}  // namespace reigen::testing
