// The functions of the CUDA runtime that Reigen calls, as one table. Tests fill the table with the functions of a
// stand-in (tests/fakes/cuda/). The CUDA runtime is opened (dlopen) when a program first asks for a device, so that
// programs also start on machines without CUDA. src/device/ is compiled without CUDA's headers.
// Thread rule: any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace reigen::device {

using CudaStream = void*;  // cudaStream_t
using CudaEvent = void*;   // cudaEvent_t

// The values of cudaError_t, cudaMemcpyKind and the flags that Reigen compares or passes, copied from CUDA's headers.
// comm/nccl/api.cc, which is compiled only with backend nccl, includes CUDA's headers. It checks at compile time that
// most of these copies are right.
inline constexpr int kCudaSuccess = 0;
inline constexpr int kCudaOutOfMemory = 2;
inline constexpr int kCudaInsufficientDriver = 35;
inline constexpr int kCudaDevicesUnavailable = 46;
inline constexpr int kCudaNotReady = 600;
inline constexpr int kCudaPeerAccessAlreadyEnabled = 704;
inline constexpr int kCudaHostToDevice = 1;
inline constexpr int kCudaDeviceToHost = 2;
inline constexpr int kCudaDeviceToDevice = 3;
inline constexpr unsigned kCudaStreamNonBlocking = 1;
inline constexpr unsigned kCudaEventDisableTiming = 2;
inline constexpr unsigned kCudaIpcLazyPeerAccess = 1;
inline constexpr int kCudaMemoryOfDevice = 2;
inline constexpr int kCudaMemoryManaged = 3;
// Values of cudaDeviceAttr, and then two values of cudaComputeMode.
inline constexpr int kCudaProcessors = 16;
inline constexpr int kCudaComputeMode = 20;
inline constexpr int kCudaCapabilityMajor = 75;
inline constexpr int kCudaCapabilityMinor = 76;
inline constexpr int kCudaProhibited = 2;
inline constexpr int kCudaExclusive = 3;
// The legacy default stream (cudaStreamLegacy), also in programs compiled with a default stream per thread.
inline CudaStream default_stream() { return reinterpret_cast<CudaStream>(1); }

struct CudaPointer {  // cudaPointerAttributes
  int memory;
  int device;
  void* device_pointer;
  void* host_pointer;
  std::array<std::byte, 320> more;  // room for members that a newer runtime writes
};

struct CudaMemoryWord {  // cudaIpcMemHandle_t
  std::array<char, 64> bytes;
};

struct CudaRuntime {
  const char* (*get_error_string)(int);
  int (*get_device_count)(int*);
  int (*get_device)(int*);
  int (*set_device)(int);
  int (*device_get_pci_bus_id)(char*, int, int);
  int (*malloc)(void**, std::size_t);
  int (*free)(void*);
  int (*malloc_host)(void**, std::size_t);
  int (*free_host)(void*);
  int (*pointer_get_attributes)(CudaPointer*, const void*);
  int (*memset_async)(void*, int, std::size_t, CudaStream);
  int (*memcpy_async)(void*, const void*, std::size_t, int, CudaStream);
  int (*stream_create_with_flags)(CudaStream*, unsigned);
  int (*stream_destroy)(CudaStream);
  int (*stream_query)(CudaStream);
  int (*stream_synchronize)(CudaStream);
  int (*stream_wait_event)(CudaStream, CudaEvent, unsigned);
  int (*event_create_with_flags)(CudaEvent*, unsigned);
  int (*event_destroy)(CudaEvent);
  int (*event_record)(CudaEvent, CudaStream);
  int (*event_query)(CudaEvent);
  int (*event_elapsed_time)(float* milliseconds, CudaEvent begin, CudaEvent end);
  int (*ipc_get_mem_handle)(CudaMemoryWord*, void*);
  int (*ipc_open_mem_handle)(void**, CudaMemoryWord, unsigned);
  int (*ipc_close_mem_handle)(void*);
  int (*device_enable_peer_access)(int, unsigned);
  int (*device_can_access_peer)(int*, int, int);
  int (*device_get_attribute)(int*, int, int);
  int (*mem_get_info)(std::size_t* free, std::size_t* total);
  int (*runtime_get_version)(int*);
  int (*driver_get_version)(int*);
  int (*get_last_error)();
};

// The functions of the driver, libcuda.so.1, that Reigen calls.
struct CudaDriver {
  // stream_write_value() enqueues a write of `value` to a 32-bit word. stream_wait_value() makes the stream wait until
  // the word is at least `value` (modulo 2^32). The address may be pinned host memory.
  int (*stream_write_value)(CudaStream, unsigned long long address, std::uint32_t value, unsigned flags);
  int (*stream_wait_value)(CudaStream, unsigned long long address, std::uint32_t value, unsigned flags);
  int (*device_get_name)(char*, int length, int device);
  int (*device_total_memory)(std::size_t*, int device);
};

// The first call of each function opens its library. If the library is missing or too old, the call throws a
// BackendError with exit code 69 that says so; a later call tries again.
const CudaRuntime& cuda_runtime();
const CudaDriver& cuda_driver();
// Clears CUDA's last error after a call of ours has failed. Otherwise the program would take this error for an error of
// its own next kernel launch.
inline void forget_error() { (void)cuda_runtime().get_last_error(); }

// Whether the code says that a kernel failed. No call of the process works on this device any more.
bool is_fault(int code);
inline constexpr const char* kFixOfFault =
    "a kernel of this process failed: run the program again with CUDA_LAUNCH_BLOCKING=1, and the call that starts the "
    "kernel throws; compute-sanitizer PROGRAM names the kernel and the address";

// Throws BackendError with CUDA's error text and what to do, unless the code says success.
void check(int code, const char* function);

}  // namespace reigen::device
