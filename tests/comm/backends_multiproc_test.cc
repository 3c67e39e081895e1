#include "comm/contract.h"

namespace reigen::testing {

INSTANTIATE_TEST_SUITE_P(Backends, CommunicatorContract,
                         ::testing::Values(ContractParameter{"shared_memory", RankKind::kProcesses, 1},
                                           ContractParameter{"shared_memory", RankKind::kProcesses, 2},
                                           ContractParameter{"shared_memory", RankKind::kProcesses, 3},
                                           ContractParameter{"shared_memory", RankKind::kProcesses, 7}),
                         name_of);

}  // namespace reigen::testing
