// The contract on processes that share a GPU, over the stand-in for CUDA: each maps the device memory of the others.
#include <chrono>

#include "comm/contract.h"
#include "fakes/cuda/stand_in.h"

namespace reigen::testing {

namespace {

void lazily(int /*rank*/) {
  stand_in::share_memory();
  stand_in::be_lazy();
}
void at_random(int rank) {
  stand_in::share_memory();
  stand_in::delay_streams(std::chrono::microseconds(50), static_cast<unsigned>(rank) + 1);
}
ContractParameter processes(int ranks, void (*prepare)(int rank)) {
  return {.backend = "cuda_ipc",
          .kind = RankKind::kProcesses,
          .ranks = ranks,
          .prepare = prepare,
          .device = Device::cuda(0)};
}

}  // namespace

INSTANTIATE_TEST_SUITE_P(CudaIpcLazyStreams, CommunicatorContract,
                         ::testing::Values(processes(1, lazily), processes(2, lazily), processes(3, lazily),
                                           processes(4, lazily), processes(7, lazily)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(CudaIpcRandomStreams, CommunicatorContract, ::testing::Values(processes(3, at_random)),
                         name_of);

}  // namespace reigen::testing
