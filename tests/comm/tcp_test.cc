#include "comm/contract.h"

namespace reigen::testing {

INSTANTIATE_TEST_SUITE_P(Tcp, CommunicatorContract,
                         ::testing::Values(ContractParameter{"tcp", RankKind::kThreads, 1},
                                           ContractParameter{"tcp", RankKind::kThreads, 2},
                                           ContractParameter{"tcp", RankKind::kThreads, 3},
                                           ContractParameter{"tcp", RankKind::kThreads, 4}),
                         name_of);

}  // namespace reigen::testing
