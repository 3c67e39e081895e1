// The contract on the NCCL backend with ranks that are processes, over the stand-in for NCCL and CUDA. Each process has
// a device of its own, whose streams begin their work only when somebody needs it, or in a random order.
#include <chrono>

#include "comm/contract.h"
#include "fakes/nccl/stand_in.h"

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

}  // namespace

INSTANTIATE_TEST_SUITE_P(NcclStandInLazyStreams, CommunicatorContract,
                         ::testing::Values(processes(1, lazily), processes(2, lazily), processes(3, lazily),
                                           processes(4, lazily), processes(7, lazily)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(NcclStandInRandomStreams, CommunicatorContract, ::testing::Values(processes(3, at_random)),
                         name_of);

}  // namespace reigen::testing
