// The contract on an engine that is not part of the library.
#include "comm/loopback/loopback.h"

#include "comm/contract.h"

namespace reigen::testing {

ContractParameter on_loopback(int ranks) {
  return {.backend = "auto", .kind = RankKind::kThreads, .ranks = ranks, .engine = &comm::loopback::entry()};
}

INSTANTIATE_TEST_SUITE_P(Loopback, CommunicatorContract,
                         ::testing::Values(on_loopback(2), on_loopback(3), on_loopback(4), on_loopback(7)), name_of);

TEST(Loopback, IsTheEngineOfItsGroups) {
  run_ranks({.ranks = 2, .engine = &comm::loopback::entry()}, [](Rank& r) {
    EXPECT_EQ(r.world().backend(), "loopback");
    EXPECT_EQ(r.world().split(0, r.rank())->backend(), "loopback");
  });
}

}  // namespace reigen::testing
