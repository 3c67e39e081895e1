// The table of functions that the backend calls, filled with functions of the stand-in.
#include "comm/nccl/api.h"

namespace reigen::comm::nccl {

const Api& api() {
  static constexpr Api kApi{
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
