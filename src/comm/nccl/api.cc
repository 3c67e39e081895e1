#include "comm/nccl/api.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <cstddef>
#include <string>
#include <vector>

#include "base/log.h"
#include "device/library.h"
#include "reigen/base/error.h"

namespace reigen::comm::nccl {

namespace {

// src/device/ is compiled without CUDA's headers and has copies of these constants and layouts. They must match.
static_assert(device::kCudaOutOfMemory == cudaErrorMemoryAllocation && device::kCudaNotReady == cudaErrorNotReady);
static_assert(device::kCudaHostToDevice == cudaMemcpyHostToDevice &&
              device::kCudaDeviceToHost == cudaMemcpyDeviceToHost &&
              device::kCudaDeviceToDevice == cudaMemcpyDeviceToDevice);
static_assert(device::kCudaStreamNonBlocking == cudaStreamNonBlocking &&
              device::kCudaEventDisableTiming == cudaEventDisableTiming &&
              device::kCudaIpcLazyPeerAccess == cudaIpcMemLazyEnablePeerAccess);
static_assert(device::kCudaMemoryOfDevice == cudaMemoryTypeDevice &&
              device::kCudaMemoryManaged == cudaMemoryTypeManaged);
static_assert(offsetof(device::CudaPointer, device) == offsetof(cudaPointerAttributes, device) &&
              sizeof(device::CudaPointer) >= sizeof(cudaPointerAttributes));
static_assert(sizeof(device::CudaMemoryWord) == sizeof(cudaIpcMemHandle_t));

constexpr int kOldestNccl = 21700;  // the first version that can limit the thread blocks of non-blocking communicators

void find_nccl(Api& api, const device::Library& library) {
  library.find(api.nccl_get_version, "ncclGetVersion");
  library.find(api.nccl_get_error_string, "ncclGetErrorString");
  library.find(api.nccl_get_last_error, "ncclGetLastError");
  library.find(api.nccl_get_unique_id, "ncclGetUniqueId");
  library.find(api.nccl_comm_init_rank_config, "ncclCommInitRankConfig");
  library.find(api.nccl_comm_get_async_error, "ncclCommGetAsyncError");
  library.find(api.nccl_comm_finalize, "ncclCommFinalize");
  library.find(api.nccl_comm_destroy, "ncclCommDestroy");
  library.find(api.nccl_comm_abort, "ncclCommAbort");
  library.find(api.nccl_group_start, "ncclGroupStart");
  library.find(api.nccl_group_end, "ncclGroupEnd");
  library.find(api.nccl_red_op_create_pre_mul_sum, "ncclRedOpCreatePreMulSum");
  library.find(api.nccl_red_op_destroy, "ncclRedOpDestroy");
  library.find(api.nccl_all_reduce, "ncclAllReduce");
  library.find(api.nccl_reduce, "ncclReduce");
  library.find(api.nccl_reduce_scatter, "ncclReduceScatter");
  library.find(api.nccl_all_gather, "ncclAllGather");
  library.find(api.nccl_broadcast, "ncclBroadcast");
  library.find(api.nccl_send, "ncclSend");
  library.find(api.nccl_recv, "ncclRecv");
}

// Opens the CUDA runtime first, then NCCL. library_folders() includes the folders beside LibTorch, where a Python
// installation has both libraries.
Api open_library() {
  (void)device::cuda_runtime();
  const std::string fix =
      "install NCCL 2.17 or newer (libnccl2, or nvidia-nccl-cu13 of PyPI), and set NCCL_ROOT to the folder that holds "
      "its lib/, or LD_LIBRARY_PATH to that; or take a backend for processors";
  std::vector<std::string> folders = device::library_folders({"NCCL_ROOT", "CUDA_ROOT", "CUDA_HOME"});
  if (*REIGEN_NCCL_FOLDER != '\0') folders.emplace_back(REIGEN_NCCL_FOLDER);
  const device::Library nccl({.name = "NCCL", .files = {"libnccl.so.2"}, .folders = folders, .fix = fix});
  Api api{};
  find_nccl(api, nccl);
  int version = 0;
  (void)api.nccl_get_version(&version);
  if (version < kOldestNccl) {
    throw BackendError(Report{.what = "this NCCL is too old for the backend \"nccl\"",
                              .got = fmt::format("{} in {}", version, nccl.path()),
                              .expected = fmt::format("{} or more", kOldestNccl),
                              .fix = fix});
  }
  base::log_info("backend nccl: NCCL {} in {}", version, nccl.path());
  return api;
}

}  // namespace

// A process can load a library only once, so its functions belong to the whole process.
const Api& api() {
  static const Api kApi = open_library();
  return kApi;
}

}  // namespace reigen::comm::nccl
