#include "comm/nccl/api.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <string>
#include <vector>

#include "base/environment.h"
#include "base/log.h"
#include "comm/nccl/library.h"
#include "reigen/base/error.h"

namespace reigen::comm::nccl {

namespace {

constexpr int kOldestNccl = 21700;  // non-blocking communicators with a limit on their blocks

// Where the variables point that installations of CUDA set, where LibTorch has its own, where CUDA lies if nobody says,
// and where the build found it; each once.
std::vector<std::string> folders_of(std::initializer_list<const char*> roots) {
  std::vector<std::string> folders;
  const auto add = [&](const std::string& folder) {
    if (!folder.empty() && std::find(folders.begin(), folders.end(), folder) == folders.end())
      folders.push_back(folder);
  };
  for (const char* root : roots) {
    const auto folder = base::get_environment(root);
    if (!folder) continue;
    add(*folder + "/lib64");
    add(*folder + "/lib");
  }
  for (const std::string& folder : folders_beside_torch()) add(folder);
  add("/usr/local/cuda/lib64");
  add(REIGEN_NCCL_FOLDER);
  add(REIGEN_CUDART_FOLDER);
  return folders;
}

// The one of the headers first: what is in the process already is taken before.
std::vector<std::string> names_of_cudart() {
  const std::string own = fmt::format("libcudart.so.{}", CUDART_VERSION / 1000);
  std::vector<std::string> names{"libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0"};
  const auto found = std::find(names.begin(), names.end(), own);
  if (found != names.end()) std::rotate(names.begin(), found, found + 1);
  return names;
}

void find_cuda(Api& api, const Library& library) {
  library.find(api.cuda_get_error_string, "cudaGetErrorString");
  library.find(api.cuda_get_device_count, "cudaGetDeviceCount");
  library.find(api.cuda_get_device, "cudaGetDevice");
  library.find(api.cuda_set_device, "cudaSetDevice");
  library.find(api.cuda_device_get_pci_bus_id, "cudaDeviceGetPCIBusId");
  library.find(api.cuda_malloc, "cudaMalloc");
  library.find(api.cuda_free, "cudaFree");
  library.find(api.cuda_malloc_host, "cudaMallocHost");
  library.find(api.cuda_free_host, "cudaFreeHost");
  library.find(api.cuda_pointer_get_attributes, "cudaPointerGetAttributes");
  library.find(api.cuda_memset_async, "cudaMemsetAsync");
  library.find(api.cuda_memcpy_async, "cudaMemcpyAsync");
  library.find(api.cuda_stream_create_with_flags, "cudaStreamCreateWithFlags");
  library.find(api.cuda_stream_destroy, "cudaStreamDestroy");
  library.find(api.cuda_stream_query, "cudaStreamQuery");
  library.find(api.cuda_stream_synchronize, "cudaStreamSynchronize");
  library.find(api.cuda_stream_wait_event, "cudaStreamWaitEvent");
  library.find(api.cuda_event_create_with_flags, "cudaEventCreateWithFlags");
  library.find(api.cuda_event_destroy, "cudaEventDestroy");
  library.find(api.cuda_event_record, "cudaEventRecord");
  library.find(api.cuda_event_query, "cudaEventQuery");
}

void find_nccl(Api& api, const Library& library) {
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

// CUDA first: LibTorch may have brought it, and NCCL lies beside it then.
Api open_libraries() {
  const Library cuda({.name = "the CUDA runtime",
                      .files = names_of_cudart(),
                      .folders = folders_of({"CUDA_ROOT", "CUDA_HOME"}),
                      .fix = "install it, and set CUDA_HOME to the folder that holds its lib64/ or lib/, or "
                             "LD_LIBRARY_PATH to that; or take a backend for processors"});
  const std::string fix =
      "install NCCL 2.17 or newer (libnccl2, or nvidia-nccl-cu13 of PyPI), and set NCCL_ROOT to the folder that holds "
      "its lib/, or LD_LIBRARY_PATH to that; or take a backend for processors";
  const Library nccl({.name = "NCCL",
                      .files = {"libnccl.so.2"},
                      .folders = folders_of({"NCCL_ROOT", "CUDA_ROOT", "CUDA_HOME"}),
                      .fix = fix});
  Api api{};
  find_cuda(api, cuda);
  find_nccl(api, nccl);
  int version = 0;
  (void)api.nccl_get_version(&version);
  if (version < kOldestNccl) {
    throw BackendError(Report{.what = "this NCCL is too old for the backend \"nccl\"",
                              .got = fmt::format("{} in {}", version, nccl.path()),
                              .expected = fmt::format("{} or more", kOldestNccl),
                              .fix = fix});
  }
  base::log_info("backend nccl: NCCL {} in {}, the CUDA runtime in {}", version, nccl.path(), cuda.path());
  return api;
}

}  // namespace

// A library can be in a process only once, and so its functions are the process's.
const Api& api() {
  static const Api kApi = open_libraries();
  return kApi;
}

}  // namespace reigen::comm::nccl
