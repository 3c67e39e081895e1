#include "comm/nccl/device.h"

#include <unistd.h>

#include <algorithm>
#include <array>

#include "base/check.h"
#include "reigen/base/bytes.h"

namespace reigen::comm::nccl {

void check(cudaError_t code, const char* function) {
  if (code == cudaSuccess) return;
  throw BackendError(Report{.what = fmt::format("{} failed", function),
                            .got = fmt::format("{} ({})", cudaGetErrorString(code), static_cast<int>(code)),
                            .expected = {},
                            .fix = "look at the device with nvidia-smi, and at the messages before this one"});
}

void check(ncclResult_t code, const char* function, ncclComm_t communicator) {
  if (code == ncclSuccess || code == ncclInProgress) return;
  const char* detail = ncclGetLastError(communicator);
  throw BackendError(
      Report{.what = fmt::format("{} failed", function),
             .got = fmt::format("{} ({}){}{}", ncclGetErrorString(code), static_cast<int>(code),
                                detail != nullptr && detail[0] != '\0' ? ": " : "", detail != nullptr ? detail : ""),
             .expected = {},
             .fix = "NCCL_DEBUG=INFO makes NCCL say more"});
}

int current_device() {
  int count = 0;
  const cudaError_t code = cudaGetDeviceCount(&count);
  if (code != cudaSuccess || count == 0) {
    throw BackendError(Report{.what = "no CUDA device is visible",
                              .got = code != cudaSuccess ? cudaGetErrorString(code) : "0 devices",
                              .expected = "a GPU for each rank",
                              .fix = "look at nvidia-smi and CUDA_VISIBLE_DEVICES, or take a backend for processors"});
  }
  int device = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  return device;
}

std::string place_of(int device) {
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  std::array<char, 32> bus{};
  check(cudaDeviceGetPCIBusId(bus.data(), static_cast<int>(bus.size()), device), "cudaDeviceGetPCIBusId");
  return fmt::format("host {}, GPU {}", host.data(), bus.data());
}

OnDevice::OnDevice(int device) {
  check(cudaGetDevice(&before_), "cudaGetDevice");
  if (before_ != device) check(cudaSetDevice(device), "cudaSetDevice");
}

OnDevice::~OnDevice() { (void)cudaSetDevice(before_); }

Event::Event(int device) {
  const OnDevice on(device);
  check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "cudaEventCreate");
}
Event::~Event() { (void)cudaEventDestroy(event_); }
void Event::record(cudaStream_t stream) { check(cudaEventRecord(event_, stream), "cudaEventRecord"); }
void Event::precede(cudaStream_t stream) const { check(cudaStreamWaitEvent(stream, event_, 0), "cudaStreamWaitEvent"); }

bool Event::is_done(const char* what) const {
  const cudaError_t state = cudaEventQuery(event_);
  if (state == cudaErrorNotReady) return false;
  check(state, what);
  return true;
}

Stream::Stream(int device) {
  const OnDevice on(device);
  check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
}
Stream::~Stream() { (void)cudaStreamDestroy(stream_); }

std::shared_ptr<void> allocate(int device, std::size_t bytes) {
  const OnDevice on(device);
  void* data = nullptr;
  const std::size_t size = std::max<std::size_t>(bytes, 1);
  const cudaError_t code = cudaMalloc(&data, size);
  if (code == cudaErrorMemoryAllocation) {
    throw IoError(Report{.what = "out of memory of the GPU",
                         .got = {},
                         .expected = fmt::format("{} more", format_bytes(size)),
                         .fix = "take a smaller model or batch"},
                  ExitCode::kOsResource);
  }
  check(code, "cudaMalloc");
  std::shared_ptr<void> block(data, [device](void* pointer) {
    int before = 0;
    (void)cudaGetDevice(&before);
    (void)cudaSetDevice(device);
    (void)cudaFree(pointer);
    (void)cudaSetDevice(before);
  });
  const Stream stream(device);  // the default stream may have much to do
  check(cudaMemsetAsync(data, 0, size, stream.get()), "cudaMemsetAsync");
  check(cudaStreamSynchronize(stream.get()), "cudaStreamSynchronize");
  return block;
}

std::shared_ptr<void> allocate_pinned(std::size_t bytes) {
  void* data = nullptr;
  check(cudaMallocHost(&data, bytes), "cudaMallocHost");
  return {data, [](void* pointer) { (void)cudaFreeHost(pointer); }};
}

Place place_of(const void* data, int device) {
  cudaPointerAttributes attributes{};
  check(cudaPointerGetAttributes(&attributes, data), "cudaPointerGetAttributes");
  if (attributes.type == cudaMemoryTypeManaged) return Place::kDevice;
  if (attributes.type != cudaMemoryTypeDevice) return Place::kHost;
  return attributes.device == device ? Place::kDevice : Place::kOtherDevice;
}

}  // namespace reigen::comm::nccl
