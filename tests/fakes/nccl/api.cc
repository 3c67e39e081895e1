// The table of functions that the backend calls, filled with those of the stand-in.
#include "comm/nccl/api.h"

namespace reigen::comm::nccl {

const Api& api() {
  static constexpr Api kApi{
      .cuda_get_error_string = &cudaGetErrorString,
      .cuda_get_device_count = &cudaGetDeviceCount,
      .cuda_get_device = &cudaGetDevice,
      .cuda_set_device = &cudaSetDevice,
      .cuda_device_get_pci_bus_id = &cudaDeviceGetPCIBusId,
      .cuda_malloc = &cudaMalloc,
      .cuda_free = &cudaFree,
      .cuda_malloc_host = &cudaMallocHost,
      .cuda_free_host = &cudaFreeHost,
      .cuda_pointer_get_attributes = &cudaPointerGetAttributes,
      .cuda_memset_async = &cudaMemsetAsync,
      .cuda_memcpy_async = &cudaMemcpyAsync,
      .cuda_stream_create_with_flags = &cudaStreamCreateWithFlags,
      .cuda_stream_destroy = &cudaStreamDestroy,
      .cuda_stream_query = &cudaStreamQuery,
      .cuda_stream_synchronize = &cudaStreamSynchronize,
      .cuda_stream_wait_event = &cudaStreamWaitEvent,
      .cuda_event_create_with_flags = &cudaEventCreateWithFlags,
      .cuda_event_destroy = &cudaEventDestroy,
      .cuda_event_record = &cudaEventRecord,
      .cuda_event_query = &cudaEventQuery,
      .nccl_get_version = &ncclGetVersion,
      .nccl_get_error_string = &ncclGetErrorString,
      .nccl_get_last_error = &ncclGetLastError,
      .nccl_get_unique_id = &ncclGetUniqueId,
      .nccl_comm_init_rank_config = &ncclCommInitRankConfig,
      .nccl_comm_get_async_error = &ncclCommGetAsyncError,
      .nccl_comm_finalize = &ncclCommFinalize,
      .nccl_comm_destroy = &ncclCommDestroy,
      .nccl_comm_abort = &ncclCommAbort,
      .nccl_group_start = &ncclGroupStart,
      .nccl_group_end = &ncclGroupEnd,
      .nccl_red_op_create_pre_mul_sum = &ncclRedOpCreatePreMulSum,
      .nccl_red_op_destroy = &ncclRedOpDestroy,
      .nccl_all_reduce = &ncclAllReduce,
      .nccl_reduce = &ncclReduce,
      .nccl_reduce_scatter = &ncclReduceScatter,
      .nccl_all_gather = &ncclAllGather,
      .nccl_broadcast = &ncclBroadcast,
      .nccl_send = &ncclSend,
      .nccl_recv = &ncclRecv,
  };
  return kApi;
}

}  // namespace reigen::comm::nccl
