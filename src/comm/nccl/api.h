// The functions of NCCL that the backend calls. NCCL is not linked. api() opens it when a group first asks for this
// backend, so that programs also start on machines without NCCL.
// Thread rule: any thread.
#pragma once

#include <nccl.h>

#include "device/cuda.h"

namespace reigen::comm::nccl {

struct Api {
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

// The first call opens the CUDA runtime and then NCCL. If a library is missing or too old, api() throws BackendError
// (exit code 69) naming the library, and a later call tries again. Tests link a different api(), which returns the
// functions of a stand-in (tests/fakes/nccl/).
const Api& api();

// Throws BackendError with NCCL's error text, unless `code` is success or "in progress".
void check(ncclResult_t code, const char* function, ncclComm_t communicator = nullptr);
// The stream in the type that NCCL's functions take.
inline cudaStream_t of_cuda(device::CudaStream stream) { return static_cast<cudaStream_t>(stream); }

}  // namespace reigen::comm::nccl
