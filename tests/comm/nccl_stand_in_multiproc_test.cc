// The contract on the NCCL backend with ranks that are processes, over the stand-in for NCCL and CUDA. Each process has
// a device of its own, whose streams begin their work late, or in a random order.
#include <chrono>

#include "comm/contract.h"
#include "fakes/nccl/stand_in.h"

namespace reigen::testing {

namespace {

void late(int rank) {
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
                         ::testing::Values(processes(1, late), processes(2, late), processes(3, late),
                                           processes(4, late), processes(7, late)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(NcclStandInRandomStreams, CommunicatorContract, ::testing::Values(processes(3, at_random)),
                         name_of);

}  // namespace reigen::testing
