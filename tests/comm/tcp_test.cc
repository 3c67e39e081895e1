// The contract over TCP, and features that only this backend has: a choice of algorithms, connections, strangers.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "comm/contract.h"
#include "comm/schedule/table.h"
#include "reigen/base/error.h"
#include "reigen/comm/call_list.h"

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

// One assertion for all elements. One for each element would take most of a test's time.
template <typename Expected>
::testing::AssertionResult holds(const std::vector<float>& x, const Expected& expected) {
  for (std::size_t i = 0; i < x.size(); ++i) {
    const auto value = static_cast<float>(expected(i));
    if (x[i] != value) return ::testing::AssertionFailure() << "[" << i << "] is " << x[i] << ", expected " << value;
  }
  return ::testing::AssertionSuccess();
}

// Calls `kind` on `count` elements and compares what it gives.
void call_and_compare(Rank& r, OperationKind kind, std::size_t count) {
  auto& world = r.world();
  const auto p = static_cast<std::size_t>(r.size());
  const auto rank = static_cast<std::size_t>(r.rank());
  const int last = r.size() - 1;
  const auto filled = [&](const auto& value) {
    std::vector<float> x(count);
    for (std::size_t i = 0; i < count; ++i) x[i] = static_cast<float>(value(i));
    return x;
  };
  const auto ramp = [&](std::size_t i) { return (rank + 1) * (i % 7); };
  const auto sum = [&](std::size_t i) { return p * (p + 1) / 2 * (i % 7); };
  switch (kind) {
    case OperationKind::kAllReduce: {
      std::vector<float> x = filled(ramp);
      world.all_reduce(x.data(), x.data(), count, DataType::kFloat32, ReduceOp::kSum);
      ASSERT_TRUE(holds(x, sum));
      break;
    }
    case OperationKind::kReduce: {
      const std::vector<float> x = filled(ramp);
      std::vector<float> total(r.rank() == last ? count : 0);
      world.reduce(x.data(), total.empty() ? nullptr : total.data(), count, DataType::kFloat32, ReduceOp::kSum, last);
      ASSERT_TRUE(holds(total, sum));
      break;
    }
    case OperationKind::kReduceScatter: {
      const std::vector<float> blocks(count * p, static_cast<float>(rank));
      std::vector<float> block(count);
      world.reduce_scatter(blocks.data(), block.data(), count, DataType::kFloat32, ReduceOp::kMax);
      ASSERT_TRUE(holds(block, [&](std::size_t) { return p - 1; }));
      break;
    }
    case OperationKind::kBroadcast: {
      std::vector<float> x(count, rank == 0 ? 5.0f : 0.0f);
      world.broadcast(x.data(), count, DataType::kFloat32, 0);
      ASSERT_TRUE(holds(x, [](std::size_t) { return 5; }));
      break;
    }
    case OperationKind::kAllGather: {
      const std::vector<float> own(count, static_cast<float>(rank));
      std::vector<float> all(count * p);
      world.all_gather(own.data(), all.data(), count, DataType::kFloat32);
      ASSERT_TRUE(holds(all, [&](std::size_t i) { return i / count; }));
      break;
    }
    default: world.barrier();
  }
}

constexpr OperationKind kKinds[] = {OperationKind::kAllReduce, OperationKind::kReduce,    OperationKind::kReduceScatter,
                                    OperationKind::kBroadcast, OperationKind::kAllGather, OperationKind::kBarrier};

TEST(TcpAlgorithms, EachGivesTheSameOverRealConnections) {
  for (const OperationKind kind : kKinds) {
    for (const auto& algorithm : comm::schedule::algorithms(kind)) {
      for (const int segments : {0, 1, 7}) {
        SCOPED_TRACE(algorithm.name);
        run_ranks({.ranks = 3,
                   .backend = "tcp",
                   .algorithms = fmt::format("{}:{}", comm::name_of(kind), algorithm.name),
                   .segments = segments},
                  [&](Rank& r) {
                    for (const std::size_t count : {1U, 1000U, 200003U}) call_and_compare(r, kind, count);
                    for (const OperationKind other : kKinds) call_and_compare(r, other, 1000);
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
      for (const OperationKind kind : kKinds) call_and_compare(r, kind, count);
    }
  });
}

TEST(TcpMemory, RanksHaveNoneInCommon) {
  run_ranks({.ranks = 2, .backend = "tcp"}, [](Rank& r) {
    EXPECT_THROW(r.world().allocate_shared(100), BackendError);
    r.world().barrier();
  });
}

// The algorithms for blocks of one size, on blocks of different sizes.
TEST(TcpAlgorithms, EachMovesUnevenBlocks) {
  for (const char* const rules : {"all_gather:flat,reduce_scatter:direct", "all_gather:ring,reduce_scatter:ring"}) {
    for (const int segments : {0, 1, 7}) {
      run_ranks({.ranks = 3, .backend = "tcp", .algorithms = rules, .segments = segments, .connections = 2},
                [](Rank& r) {
                  const std::vector<std::size_t> counts = {5, 0, 100003};
                  const std::size_t own = counts[static_cast<std::size_t>(r.rank())];
                  const std::vector<float> one(own, static_cast<float>(r.rank()));
                  std::vector<float> all(100008);
                  r.world().all_gather_v(one.data(), all.data(), counts, DataType::kFloat32);
                  ASSERT_TRUE(elements_are(all, all.size(), [](std::size_t i) { return i < 5 ? 0 : 2; }));
                  std::vector<float> sum(own);
                  for (auto& x : all) x += static_cast<float>(r.rank());
                  r.world().reduce_scatter_v(all.data(), sum.data(), counts, DataType::kFloat32, ReduceOp::kSum);
                  ASSERT_TRUE(elements_are(sum, sum.size(), r.rank() == 0 ? 3 : 9));
                });
    }
  }
}

// Two of three ranks differ in the counts of their exchange. Both name the difference, and the third gets the cause of
// the end.
TEST(TcpMismatch, AnExchangeThatTwoSeeDifferently) {
  run_ranks({.ranks = 3, .backend = "tcp"}, [](Rank& r) {
    const std::vector<std::size_t> leaves(3, 2);
    std::vector<std::size_t> arrives(3, 2);
    if (r.rank() == 1) arrives[2] = 5;
    std::vector<float> data(6);
    std::vector<float> into(9);
    try {
      r.world().all_to_all_v(data.data(), leaves, into.data(), arrives, DataType::kFloat32);
      r.world().barrier();
      ADD_FAILURE() << "not noticed";
    } catch (const CollectiveMismatch& error) {
      EXPECT_THAT(error.what(), HasSubstr("rank 2 gives 2 elements to rank 1"));
      EXPECT_THAT(error.what(), HasSubstr("5 elements, as rank 1 said"));
    }
  });
}

TEST(TcpMismatch, WhatARankKeepsForItself) {
  run_ranks({.ranks = 2, .backend = "tcp"}, [](Rank& r) {
    const std::vector<std::size_t> leaves(2, 2);
    std::vector<std::size_t> arrives(2, 2);
    if (r.rank() == 1) arrives[1] = 1000;
    std::vector<float> data(4);
    std::vector<float> into(1002);
    try {
      r.world().all_to_all_v(data.data(), leaves, into.data(), arrives, DataType::kFloat32);
      r.world().barrier();
      ADD_FAILURE() << "not noticed";
    } catch (const CollectiveMismatch& error) {
      EXPECT_THAT(error.what(), HasSubstr("rank 1 gives 2 elements to rank 1"));
    }
  });
}

// Many more messages than the buffers of a connection can hold, with collectives between them.
TEST(TcpMessages, ManyAreUnderWayAtOnce) {
  run_ranks({.ranks = 3, .backend = "tcp", .connections = 2}, [](Rank& r) {
    constexpr std::size_t kCount = 50000;
    std::vector<std::vector<std::int32_t>> out;
    std::vector<std::vector<std::int32_t>> in;
    std::vector<Work> works;
    for (int k = 0; k < 60; ++k) {
      out.emplace_back(kCount, r.rank() * 1000 + k);
      in.emplace_back(kCount, -1);
    }
    for (std::size_t k = 0; k < out.size(); ++k) {
      const int to = (r.rank() + 1 + static_cast<int>(k % 2)) % 3;
      const int from = (r.rank() + 2 - static_cast<int>(k % 2)) % 3;
      works.push_back(r.world().start_send(out[k].data(), kCount, DataType::kInt32, to));
      works.push_back(r.world().start_recv(in[k].data(), kCount, DataType::kInt32, from));
      if (k % 7 == 0) works.push_back(r.world().start_barrier());
    }
    for (const Work& work : works) work.wait();
    for (std::size_t k = 0; k < in.size(); ++k) {
      const int from = (r.rank() + 2 - static_cast<int>(k % 2)) % 3;
      ASSERT_TRUE(elements_are(in[k], in[k].size(), from * 1000 + static_cast<int>(k)));
    }
  });
}

TEST(TcpAlgorithms, OtherBackendsHaveNoChoice) {
  EXPECT_THROW(Communicator({.backend = "self", .algorithms = "all_reduce:ring"}), InvalidArgument);
}

TEST(Tcp, GroupsCountTheBytesThatTheySend) {
  run_ranks({.ranks = 2, .backend = "tcp"}, [](Rank& r) {
    const std::vector<float> data(10000);
    std::vector<float> arrives(data.size());
    const Communicator half = r.world().split(0).value();
    const std::uint64_t before = half.network_bytes().value();
    const std::uint64_t of_world = r.world().network_bytes().value();
    comm::CallList calls;
    calls.send(data.data(), data.size(), DataType::kFloat32, 1 - r.rank());
    calls.recv(arrives.data(), arrives.size(), DataType::kFloat32, 1 - r.rank());
    half.run(calls);
    EXPECT_GE(half.network_bytes().value() - before, data.size() * 4);
    EXPECT_LE(half.network_bytes().value() - before, data.size() * 4 + 256);  // and a header
    EXPECT_EQ(r.world().network_bytes(), of_world);
  });
}

}  // namespace
}  // namespace reigen::testing
