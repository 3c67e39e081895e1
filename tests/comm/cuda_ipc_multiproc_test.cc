// The contract on processes that share a GPU, over the stand-in for CUDA: each maps the device memory of the others.
#include "comm/contract.h"
#include "fakes/cuda/stand_in.h"

namespace reigen::testing {

namespace {

ContractParameter processes(int ranks) {
  return {.backend = "cuda_ipc",
          .kind = RankKind::kProcesses,
          .ranks = ranks,
          .prepare = [](int) { stand_in::share_memory(); },
          .device = Device::cuda(0)};
}

}  // namespace

INSTANTIATE_TEST_SUITE_P(CudaIpc, CommunicatorContract,
                         ::testing::Values(processes(1), processes(2), processes(3), processes(4), processes(7)),
                         name_of);

}  // namespace reigen::testing
