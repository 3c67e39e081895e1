#include "device/cuda_runtime.h"

#include <string>
#include <vector>

#include "base/log.h"
#include "device/library.h"
#include "reigen/base/error.h"

namespace reigen::device {

namespace {

CudaRuntime open_runtime() {
  std::vector<std::string> folders = library_folders({"CUDA_ROOT", "CUDA_HOME"});
  if (*REIGEN_CUDART_FOLDER != '\0') folders.emplace_back(REIGEN_CUDART_FOLDER);
  const Library library({.name = "the CUDA runtime",
                         .files = {"libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0"},
                         .folders = folders,
                         .fix = "install it, and set CUDA_HOME to the folder that holds its lib64/ or lib/, or "
                                "LD_LIBRARY_PATH to that; or stay with the cpu"});
  CudaRuntime table{};
  library.find(table.get_error_string, "cudaGetErrorString");
  library.find(table.get_device_count, "cudaGetDeviceCount");
  library.find(table.get_device, "cudaGetDevice");
  library.find(table.set_device, "cudaSetDevice");
  library.find(table.device_get_pci_bus_id, "cudaDeviceGetPCIBusId");
  library.find(table.malloc, "cudaMalloc");
  library.find(table.free, "cudaFree");
  library.find(table.malloc_host, "cudaMallocHost");
  library.find(table.free_host, "cudaFreeHost");
  library.find(table.pointer_get_attributes, "cudaPointerGetAttributes");
  library.find(table.memset_async, "cudaMemsetAsync");
  library.find(table.memcpy_async, "cudaMemcpyAsync");
  library.find(table.stream_create_with_flags, "cudaStreamCreateWithFlags");
  library.find(table.stream_destroy, "cudaStreamDestroy");
  library.find(table.stream_query, "cudaStreamQuery");
  library.find(table.stream_synchronize, "cudaStreamSynchronize");
  library.find(table.stream_wait_event, "cudaStreamWaitEvent");
  library.find(table.event_create_with_flags, "cudaEventCreateWithFlags");
  library.find(table.event_destroy, "cudaEventDestroy");
  library.find(table.event_record, "cudaEventRecord");
  library.find(table.event_query, "cudaEventQuery");
  library.find(table.event_elapsed_time, "cudaEventElapsedTime");
  library.find(table.ipc_get_mem_handle, "cudaIpcGetMemHandle");
  library.find(table.ipc_open_mem_handle, "cudaIpcOpenMemHandle");
  library.find(table.ipc_close_mem_handle, "cudaIpcCloseMemHandle");
  library.find(table.device_enable_peer_access, "cudaDeviceEnablePeerAccess");
  library.find(table.device_can_access_peer, "cudaDeviceCanAccessPeer");
  library.find(table.device_get_attribute, "cudaDeviceGetAttribute");
  library.find(table.mem_get_info, "cudaMemGetInfo");
  library.find(table.runtime_get_version, "cudaRuntimeGetVersion");
  library.find(table.driver_get_version, "cudaDriverGetVersion");
  library.find(table.get_last_error, "cudaGetLastError");
  base::log_info("the CUDA runtime in {}", library.path());
  return table;
}

CudaDriver open_driver() {
  (void)cuda_runtime();
  const Library driver({.name = "NVIDIA's driver",
                        .files = {"libcuda.so.1"},
                        .folders = {},
                        .fix =
                            "install the driver of the GPU, 535 or newer (nvidia-smi comes with it); in a container, "
                            "start it with --gpus all; or stay with the cpu"});
  CudaDriver table{};
  driver.find(table.stream_write_value, "cuStreamWriteValue32_v2");
  driver.find(table.stream_wait_value, "cuStreamWaitValue32_v2");
  driver.find(table.device_get_name, "cuDeviceGetName");
  driver.find(table.device_total_memory, "cuDeviceTotalMem_v2");
  return table;
}

}  // namespace

// A process can load a library only once, so the whole process has one table of its functions.
const CudaRuntime& cuda_runtime() {
  static const CudaRuntime kTable = open_runtime();
  return kTable;
}

const CudaDriver& cuda_driver() {
  static const CudaDriver kTable = open_driver();
  return kTable;
}

}  // namespace reigen::device
