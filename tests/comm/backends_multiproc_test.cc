#include "comm/contract.h"

namespace reigen::testing {

const auto kRanks = ::testing::Values(ContractParameter{"shared_memory", RankKind::kProcesses, 1},
                                      ContractParameter{"shared_memory", RankKind::kProcesses, 2},
                                      ContractParameter{"shared_memory", RankKind::kProcesses, 3},
                                      ContractParameter{"shared_memory", RankKind::kProcesses, 7});
INSTANTIATE_TEST_SUITE_P(Backends, CommunicatorContract, kRanks, name_of);
INSTANTIATE_TEST_SUITE_P(Backends, CommonMemoryContract, kRanks, name_of);

}  // namespace reigen::testing
