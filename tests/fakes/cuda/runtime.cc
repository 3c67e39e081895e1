// The table of functions that device/ calls, filled with functions of the stand-in. Their types are CUDA's own.
#include "device/cuda_runtime.h"

#include <cuda_runtime_api.h>

#include "fakes/cuda/device.h"

namespace reigen::device {

namespace {

template <class To, class From>
void put(To& place, From function) {
  place = reinterpret_cast<To>(reinterpret_cast<void (*)()>(function));
}

CudaRuntime functions() {
  CudaRuntime table{};
  put(table.get_error_string, &::cudaGetErrorString);
  put(table.get_device_count, &::cudaGetDeviceCount);
  put(table.get_device, &::cudaGetDevice);
  put(table.set_device, &::cudaSetDevice);
  put(table.device_get_pci_bus_id, &::cudaDeviceGetPCIBusId);
  put(table.malloc, static_cast<cudaError_t (*)(void**, std::size_t)>(&::cudaMalloc));
  put(table.free, &::cudaFree);
  put(table.malloc_host, static_cast<cudaError_t (*)(void**, std::size_t)>(&::cudaMallocHost));
  put(table.free_host, &::cudaFreeHost);
  put(table.pointer_get_attributes, &::cudaPointerGetAttributes);
  put(table.memset_async, &::cudaMemsetAsync);
  put(table.memcpy_async, &::cudaMemcpyAsync);
  put(table.stream_create_with_flags, &::cudaStreamCreateWithFlags);
  put(table.stream_destroy, &::cudaStreamDestroy);
  put(table.stream_query, &::cudaStreamQuery);
  put(table.stream_synchronize, &::cudaStreamSynchronize);
  put(table.stream_wait_event, &::cudaStreamWaitEvent);
  put(table.event_create_with_flags, static_cast<cudaError_t (*)(cudaEvent_t*, unsigned)>(&::cudaEventCreateWithFlags));
  put(table.event_destroy, &::cudaEventDestroy);
  put(table.event_record, &::cudaEventRecord);
  put(table.event_query, &::cudaEventQuery);
  put(table.event_elapsed_time,
      static_cast<cudaError_t (*)(float*, cudaEvent_t, cudaEvent_t)>(&::cudaEventElapsedTime));
  put(table.ipc_get_mem_handle, &::cudaIpcGetMemHandle);
  put(table.ipc_open_mem_handle, &::cudaIpcOpenMemHandle);
  put(table.ipc_close_mem_handle, &::cudaIpcCloseMemHandle);
  put(table.get_last_error, &::cudaGetLastError);
  put(table.device_enable_peer_access, &::cudaDeviceEnablePeerAccess);
  put(table.device_can_access_peer, &::cudaDeviceCanAccessPeer);
  put(table.device_get_attribute, &::cudaDeviceGetAttribute);
  put(table.mem_get_info, &::cudaMemGetInfo);
  put(table.runtime_get_version, &::cudaRuntimeGetVersion);
  put(table.driver_get_version, &::cudaDriverGetVersion);
  return table;
}

CudaDriver functions_of_driver() {
  CudaDriver table{};
  put(table.stream_write_value, &::cuStreamWriteValue32_v2);
  put(table.stream_wait_value, &::cuStreamWaitValue32_v2);
  put(table.device_get_name, &::cuDeviceGetName);
  put(table.device_total_memory, &::cuDeviceTotalMem_v2);
  return table;
}

}  // namespace

const CudaDriver& cuda_driver() {
  static const CudaDriver kTable = functions_of_driver();
  return kTable;
}

const CudaRuntime& cuda_runtime() {
  static const CudaRuntime kTable = functions();
  return kTable;
}

}  // namespace reigen::device
