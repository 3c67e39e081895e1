#include "comm/contract.h"

namespace reigen::testing {

INSTANTIATE_TEST_SUITE_P(Tcp, CommunicatorContract,
                         ::testing::Values(ContractParameter{"tcp", RankKind::kProcesses, 2},
                                           ContractParameter{"tcp", RankKind::kProcesses, 3}),
                         name_of);

}  // namespace reigen::testing
