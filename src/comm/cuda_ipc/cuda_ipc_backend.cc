#include "comm/cuda_ipc/cuda_ipc_backend.h"

#include <chrono>

#include "comm/cuda_ipc/cuda_medium.h"
#include "comm/forming/forming.h"
#include "comm/shared_memory/shared_memory_backend.h"
#include "device/cuda.h"
#include "reigen/comm/options.h"

namespace reigen::comm::cuda_ipc {

namespace {

constexpr auto kJoinSlice = std::chrono::seconds(1);

}  // namespace

// A rank that has no GPU, no plug-in of kernels or no free memory reports this to the other ranks. Otherwise the other
// ranks would wait for this rank.
std::unique_ptr<Backend> make_backend(const GroupOptions& options) {
  Forming forming(options, "/device", kJoinSlice);
  std::shared_ptr<CudaMedium> medium;
  try {
    medium = std::make_shared<CudaMedium>(
        device::choose_cuda(options.device.index, options.local_rank.value_or(options.rank)));
    forming.exchange("device", device::place_of(medium->device().index));
  } catch (const Error& error) {
    forming.end_for_all(error);
  }
  return shared_memory::make_backend_on(options, std::move(medium));
}

}  // namespace reigen::comm::cuda_ipc
