#include "comm/contract.h"

namespace reigen::testing {

INSTANTIATE_TEST_SUITE_P(Mpi, CommunicatorContract,
                         ::testing::Values(ContractParameter{"mpi", RankKind::kMpi, 1},
                                           ContractParameter{"mpi", RankKind::kMpi, 2},
                                           ContractParameter{"mpi", RankKind::kMpi, 3}),
                         name_of);

}  // namespace reigen::testing
