// The contract on the NCCL backend with ranks that are processes, over the stand-in for NCCL and CUDA. Each process has
// a device of its own, whose streams begin their work only when somebody needs it, or in a random order.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "comm/contract.h"
#include "fakes/nccl/stand_in.h"
#include "reigen/base/error.h"

namespace reigen::testing {

namespace {

void lazily(int rank) {
  stand_in::use_device_of(rank);
  stand_in::be_lazy();
}
void at_random(int rank) {
  stand_in::use_device_of(rank);
  stand_in::delay_streams(std::chrono::microseconds(50), static_cast<unsigned>(rank) + 1);
}
ContractParameter processes(int ranks, void (*prepare)(int rank)) {
  return {.backend = "nccl", .kind = RankKind::kProcesses, .ranks = ranks, .prepare = prepare};
}

// NCCL connects nobody, and rank 1 dies meanwhile. Rank 0 says so long before join_timeout.
TEST(NcclStandInProcesses, ARankThatDiesWhileNcclConnectsIsNamed) {
  const RankOptions options{.ranks = 2,
                            .kind = RankKind::kProcesses,
                            .fault = kill(rank(1)).at_step(1),
                            .backend = "nccl",
                            .prepare = &stand_in::use_device_of};
  run_ranks(options, [](Rank& r) {
    stand_in::connect(false);
    std::thread later([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(500));
      r.step(1);
    });
    const auto begin = std::chrono::steady_clock::now();
    try {
      r.world();
      ADD_FAILURE() << "connected";
    } catch (const PeerLost& error) {
      EXPECT_EQ(error.rank(), 1);
    }
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
    later.join();
  });
}

}  // namespace

INSTANTIATE_TEST_SUITE_P(NcclStandInLazyStreams, CommunicatorContract,
                         ::testing::Values(processes(1, lazily), processes(2, lazily), processes(3, lazily),
                                           processes(4, lazily), processes(7, lazily)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(NcclStandInRandomStreams, CommunicatorContract, ::testing::Values(processes(3, at_random)),
                         name_of);

}  // namespace reigen::testing
