// The contract on the NCCL backend with ranks that are processes, over the stand-in for NCCL and CUDA. Each process has
// a device of its own, whose streams begin their work late.
#include <chrono>

#include "comm/contract.h"
#include "fakes/nccl/stand_in.h"

namespace reigen::testing {

namespace {

ContractParameter processes(int ranks) {
  const auto late = [](int rank) {
    stand_in::use_device_of(rank);
    stand_in::delay_streams(std::chrono::microseconds(50));
  };
  return {.backend = "nccl", .kind = RankKind::kProcesses, .ranks = ranks, .prepare = late};
}

}  // namespace

INSTANTIATE_TEST_SUITE_P(NcclStandIn, CommunicatorContract,
                         ::testing::Values(processes(1), processes(2), processes(3), processes(4), processes(7)),
                         name_of);

}  // namespace reigen::testing
