#include "comm/contract.h"

namespace reigen::testing {

INSTANTIATE_TEST_SUITE_P(Backends, CommunicatorContract,
                         ::testing::Values(ContractParameter{"self", RankKind::kThreads, 1},
                                           ContractParameter{"shared_memory", RankKind::kThreads, 1},
                                           ContractParameter{"shared_memory", RankKind::kThreads, 2},
                                           ContractParameter{"shared_memory", RankKind::kThreads, 3},
                                           ContractParameter{"shared_memory", RankKind::kThreads, 4},
                                           ContractParameter{"shared_memory", RankKind::kThreads, 7}),
                         name_of);

}  // namespace reigen::testing
