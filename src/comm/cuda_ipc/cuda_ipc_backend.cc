#include "comm/cuda_ipc/cuda_ipc_backend.h"

#include "comm/cuda_ipc/cuda_medium.h"
#include "comm/shared_memory/shared_memory_backend.h"
#include "device/cuda.h"
#include "reigen/comm/options.h"

namespace reigen::comm::cuda_ipc {

std::unique_ptr<Backend> make_backend(const GroupOptions& options) {
  const int device = device::choose_cuda(options.device.index, options.rank);
  return shared_memory::make_backend_on(options, std::make_shared<CudaMedium>(device));
}

}  // namespace reigen::comm::cuda_ipc
