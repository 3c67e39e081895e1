#include "comm/contract.h"

namespace reigen::testing {

INSTANTIATE_TEST_SUITE_P(Hierarchical, CommunicatorContract,
                         ::testing::Values(ContractParameter{"hierarchical", RankKind::kProcesses, 3},
                                           ContractParameter{"hierarchical", RankKind::kProcesses, 4, 2}),
                         name_of);

}  // namespace reigen::testing
