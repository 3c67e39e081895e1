// What the backend calls of NCCL and of the CUDA runtime. Neither library is linked: both are opened when a group first
// asks for this backend, so that every program starts where they are missing.
// Thread rule: any thread.
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <cstddef>

namespace reigen::comm::nccl {

struct Api {
  decltype(&::cudaGetErrorString) cuda_get_error_string;
  decltype(&::cudaGetDeviceCount) cuda_get_device_count;
  decltype(&::cudaGetDevice) cuda_get_device;
  decltype(&::cudaSetDevice) cuda_set_device;
  decltype(&::cudaDeviceGetPCIBusId) cuda_device_get_pci_bus_id;
  cudaError_t (*cuda_malloc)(void**, std::size_t);  // written out, as below: C++ has templates of these names, too
  decltype(&::cudaFree) cuda_free;
  cudaError_t (*cuda_malloc_host)(void**, std::size_t);
  decltype(&::cudaFreeHost) cuda_free_host;
  decltype(&::cudaPointerGetAttributes) cuda_pointer_get_attributes;
  decltype(&::cudaMemsetAsync) cuda_memset_async;
  decltype(&::cudaMemcpyAsync) cuda_memcpy_async;
  decltype(&::cudaStreamCreateWithFlags) cuda_stream_create_with_flags;
  decltype(&::cudaStreamDestroy) cuda_stream_destroy;
  decltype(&::cudaStreamQuery) cuda_stream_query;
  decltype(&::cudaStreamSynchronize) cuda_stream_synchronize;
  decltype(&::cudaStreamWaitEvent) cuda_stream_wait_event;
  decltype(&::cudaEventCreateWithFlags) cuda_event_create_with_flags;
  decltype(&::cudaEventDestroy) cuda_event_destroy;
  decltype(&::cudaEventRecord) cuda_event_record;
  decltype(&::cudaEventQuery) cuda_event_query;

  decltype(&::ncclGetVersion) nccl_get_version;
  decltype(&::ncclGetErrorString) nccl_get_error_string;
  decltype(&::ncclGetLastError) nccl_get_last_error;
  decltype(&::ncclGetUniqueId) nccl_get_unique_id;
  decltype(&::ncclCommInitRankConfig) nccl_comm_init_rank_config;
  decltype(&::ncclCommGetAsyncError) nccl_comm_get_async_error;
  decltype(&::ncclCommFinalize) nccl_comm_finalize;
  decltype(&::ncclCommDestroy) nccl_comm_destroy;
  decltype(&::ncclCommAbort) nccl_comm_abort;
  decltype(&::ncclGroupStart) nccl_group_start;
  decltype(&::ncclGroupEnd) nccl_group_end;
  decltype(&::ncclRedOpCreatePreMulSum) nccl_red_op_create_pre_mul_sum;
  decltype(&::ncclRedOpDestroy) nccl_red_op_destroy;
  decltype(&::ncclAllReduce) nccl_all_reduce;
  decltype(&::ncclReduce) nccl_reduce;
  decltype(&::ncclReduceScatter) nccl_reduce_scatter;
  decltype(&::ncclAllGather) nccl_all_gather;
  decltype(&::ncclBroadcast) nccl_broadcast;
  decltype(&::ncclSend) nccl_send;
  decltype(&::ncclRecv) nccl_recv;
};

// The functions of NCCL and of the CUDA runtime. The first call opens the two libraries. It throws BackendError (69)
// and names the library that is missing or too old; a later call tries again. Tests link another api(), which gives the
// functions of a stand-in (tests/fakes/nccl/).
const Api& api();

}  // namespace reigen::comm::nccl
