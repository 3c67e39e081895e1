#include <gmock/gmock.h>

#include "comm/contract.h"
#include "comm/hierarchical/layout.h"
#include "comm/hierarchical/machines.h"
#include "reigen/base/error.h"

namespace reigen::testing {

using comm::hierarchical::group_by_reach;
using comm::hierarchical::Layout;
using comm::hierarchical::Machines;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// First neighbouring ranks share a machine, then every other rank. In the second case the order of the blocks differs
// from the order of the machines.
INSTANTIATE_TEST_SUITE_P(Hierarchical, CommunicatorContract,
                         ::testing::Values(ContractParameter{"hierarchical", RankKind::kThreads, 1},
                                           ContractParameter{"hierarchical", RankKind::kThreads, 2},
                                           ContractParameter{"hierarchical", RankKind::kThreads, 3},
                                           ContractParameter{"hierarchical", RankKind::kThreads, 4},
                                           ContractParameter{"hierarchical", RankKind::kThreads, 4, 2},
                                           ContractParameter{"hierarchical", RankKind::kThreads, 5, 2}),
                         name_of);

TEST(Machines, RanksThatReachEachOtherShareOne) {
  const std::vector<std::vector<bool>> reaches = {{true, false, true}, {false, true, false}, {true, false, true}};
  EXPECT_THAT(group_by_reach(reaches), ElementsAre(ElementsAre(0, 2), ElementsAre(1)));
}

// Rank 1 cannot open the memory of rank 0, although rank 0 can open its memory.
TEST(Machines, ReachIsMutual) {
  const std::vector<std::vector<bool>> reaches = {{true, true, true}, {false, true, true}, {true, true, true}};
  EXPECT_THAT(group_by_reach(reaches), ElementsAre(ElementsAre(0, 2), ElementsAre(1)));
}

TEST(Layout, OfARankAmongUnevenMachines) {
  const Layout layout(Machines{{0, 3, 4}, {1, 2}}, 4);
  EXPECT_EQ(layout.machine, 0);
  EXPECT_EQ(layout.place, 2);
  EXPECT_EQ(layout.carriers, 2);
  EXPECT_EQ(layout.machine_of(2), 1);
  EXPECT_EQ(layout.place_of(2), 1);
  EXPECT_THAT(layout.order, ElementsAre(0, 3, 4, 1, 2));
  EXPECT_FALSE(layout.in_order);
  EXPECT_TRUE(Layout(Machines{{0, 1}, {2}}, 0).in_order);
}

TEST(Automatic, TakesWhatTheRanksHaveInCommon) {
  const auto backend_of = [](int ranks, int machines) {
    std::string name;
    run_ranks({.ranks = ranks, .machines = machines}, [&](Rank& r) {
      if (r.rank() == 0) name = r.world().backend();
      r.world().barrier();
    });
    return name;
  };
  EXPECT_EQ(backend_of(3, 0), "shared_memory");
  EXPECT_EQ(backend_of(3, 3), "tcp");
  EXPECT_EQ(backend_of(3, 2), "hierarchical");
}

TEST(Hierarchical, APartOnOneMachineIsOneOfSharedMemory) {
  run_ranks({.ranks = 4, .backend = "hierarchical", .machines = 2}, [](Rank& r) {
    auto alike = r.world().split(r.rank() % 2);
    EXPECT_EQ(alike->backend(), "shared_memory");
    auto across = r.world().split(r.rank() / 2);
    EXPECT_EQ(across->backend(), "tcp");
    auto three = r.world().split(r.rank() == 3 ? -1 : 0, -r.rank());
    std::int64_t sum = 1 << r.rank();
    if (three) {
      EXPECT_EQ(three->backend(), "hierarchical");
      EXPECT_EQ(three->rank(), 2 - r.rank());
      three->all_reduce(&sum, &sum, 1, DataType::kInt64, ReduceOp::kSum);
      EXPECT_EQ(sum, 7);
    }
    r.world().barrier();
  });
}

TEST(Hierarchical, EachLevelTakesItsOwnAlgorithms) {
  const std::string rules = "reduce_scatter:two_shot,all_gather:two_shot,all_reduce:ring";
  run_ranks({.ranks = 4, .backend = "hierarchical", .ranks_a_machine = 2, .algorithms = rules}, [](Rank& r) {
    std::vector<float> x(100000, 1.0f);
    r.world().all_reduce(x.data(), x.data(), x.size(), DataType::kFloat32, ReduceOp::kSum);
    ASSERT_TRUE(elements_are(x, x.size(), 4.0f));
    EXPECT_EQ(r.world().last_algorithm(), "two_shot+ring+two_shot");
  });
}

TEST(Hierarchical, BadOptionsAreRefused) {
  const auto store = store::make_memory_store();
  EXPECT_THROW(Communicator({.size = 2, .store = store, .backend = "hierarchical", .network = "carrier pigeons"}),
               InvalidArgument);
}

TEST(Hierarchical, ErrorsNameRanksByTheirNumbersInTheWholeGroup) {
  run_ranks({.ranks = 4, .backend = "hierarchical", .ranks_a_machine = 2}, [](Rank& r) {
    r.world().barrier();
    std::vector<float> data(r.rank() == 3 ? 101 : 100);
    try {
      r.world().all_reduce(data.data(), data.data(), data.size(), DataType::kFloat32, ReduceOp::kSum,
                           {.tag = "step 9"});
      ADD_FAILURE() << "different counts were accepted";
    } catch (const CollectiveMismatch& error) {
      EXPECT_THAT(error.what(), HasSubstr("ranks 0 and 3 differ in the count"));
      EXPECT_THAT(error.what(), HasSubstr("all_reduce(101 float32, sum) \"step 9\""));
    }
  });
}

// An all_reduce of N bytes on two machines of two ranks sends N / 2 bytes from each rank over the network.
TEST(Hierarchical, OnlyBytesBetweenMachinesCount) {
  run_ranks({.ranks = 4, .backend = "hierarchical", .ranks_a_machine = 2}, [](Rank& r) {
    std::vector<float> data(100000);
    const Communicator machine = r.world().split(r.rank() / 2).value();
    const auto sum = [&](const Communicator& group) {
      group.all_reduce(data.data(), data.data(), data.size(), DataType::kFloat32, ReduceOp::kSum);
    };
    const std::uint64_t before = r.world().network_bytes().value();
    sum(r.world());
    EXPECT_GE(r.world().network_bytes().value() - before, data.size() * 2);
    EXPECT_LE(r.world().network_bytes().value() - before, data.size() * 2 + 4096);
    sum(machine);
    EXPECT_EQ(machine.network_bytes(), 0U);
  });
}

}  // namespace reigen::testing
