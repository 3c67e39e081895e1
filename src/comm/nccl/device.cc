#include "comm/nccl/device.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/check.h"
#include "reigen/base/bytes.h"

namespace reigen::comm::nccl {

void check(cudaError_t code, const char* function) {
  if (code == cudaSuccess) return;
  throw BackendError(Report{.what = fmt::format("{} failed", function),
                            .got = fmt::format("{} ({})", api().cuda_get_error_string(code), static_cast<int>(code)),
                            .expected = {},
                            .fix = "look at the device with nvidia-smi, and at the messages before this one"});
}

void check(ncclResult_t code, const char* function, ncclComm_t communicator) {
  if (code == ncclSuccess || code == ncclInProgress) return;
  const char* detail = api().nccl_get_last_error(communicator);
  throw BackendError(
      Report{.what = fmt::format("{} failed", function),
             .got = fmt::format("{} ({}){}{}", api().nccl_get_error_string(code), static_cast<int>(code),
                                detail != nullptr && detail[0] != '\0' ? ": " : "", detail != nullptr ? detail : ""),
             .expected = {},
             .fix = "NCCL_DEBUG=INFO makes NCCL say more"});
}

int choose_device(int wanted) {
  int count = 0;
  const cudaError_t code = api().cuda_get_device_count(&count);
  if (code != cudaSuccess || count == 0) {
    throw BackendError(Report{.what = "no CUDA device is visible",
                              .got = code != cudaSuccess ? api().cuda_get_error_string(code) : "0 devices",
                              .expected = "a GPU for each rank",
                              .fix = "look at nvidia-smi and CUDA_VISIBLE_DEVICES, or take a backend for processors"});
  }
  if (wanted >= 0) return wanted % count;
  int device = 0;
  check(api().cuda_get_device(&device), "cudaGetDevice");
  return device;
}

std::string place_of(int device) {
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  std::array<char, 32> bus{};
  check(api().cuda_device_get_pci_bus_id(bus.data(), static_cast<int>(bus.size()), device), "cudaDeviceGetPCIBusId");
  return fmt::format("host {}, GPU {}", host.data(), bus.data());
}

OnDevice::OnDevice(int device) {
  check(api().cuda_get_device(&before_), "cudaGetDevice");
  if (before_ != device) check(api().cuda_set_device(device), "cudaSetDevice");
}

OnDevice::~OnDevice() { (void)api().cuda_set_device(before_); }

Event::Event(int device) {
  const OnDevice on(device);
  check(api().cuda_event_create_with_flags(&event_, cudaEventDisableTiming), "cudaEventCreate");
}
Event::~Event() { (void)api().cuda_event_destroy(event_); }
void Event::record(cudaStream_t stream) { check(api().cuda_event_record(event_, stream), "cudaEventRecord"); }
void Event::precede(cudaStream_t stream) const {
  check(api().cuda_stream_wait_event(stream, event_, 0), "cudaStreamWaitEvent");
}

bool Event::is_done(const char* what) const {
  const cudaError_t state = api().cuda_event_query(event_);
  if (state == cudaErrorNotReady) return false;
  check(state, what);
  return true;
}

Stream::Stream(int device) {
  const OnDevice on(device);
  check(api().cuda_stream_create_with_flags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
}
Stream::~Stream() { (void)api().cuda_stream_destroy(stream_); }

std::shared_ptr<void> allocate(int device, std::size_t bytes) {
  const OnDevice on(device);
  void* data = nullptr;
  const std::size_t size = std::max<std::size_t>(bytes, 1);
  const cudaError_t code = api().cuda_malloc(&data, size);
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
    (void)api().cuda_get_device(&before);
    (void)api().cuda_set_device(device);
    (void)api().cuda_free(pointer);
    (void)api().cuda_set_device(before);
  });
  const Stream stream(device);  // the default stream may have much to do
  check(api().cuda_memset_async(data, 0, size, stream.get()), "cudaMemsetAsync");
  check(api().cuda_stream_synchronize(stream.get()), "cudaStreamSynchronize");
  return block;
}

std::shared_ptr<void> allocate_pinned(std::size_t bytes) {
  void* data = nullptr;
  check(api().cuda_malloc_host(&data, bytes), "cudaMallocHost");
  return {data, [](void* pointer) { (void)api().cuda_free_host(pointer); }};
}

void Carrier::to_device(void* to, const void* from, std::size_t bytes) {
  copy(static_cast<std::byte*>(to), static_cast<const std::byte*>(from), bytes, cudaMemcpyHostToDevice);
}

void Carrier::to_host(void* to, const void* from, std::size_t bytes) {
  copy(static_cast<std::byte*>(to), static_cast<const std::byte*>(from), bytes, cudaMemcpyDeviceToHost);
}

void Carrier::copy(std::byte* to, const std::byte* from, std::size_t bytes, cudaMemcpyKind kind) {
  if (bytes == 0) return;
  const bool leaves = kind == cudaMemcpyHostToDevice;
  const Place place = place_of(leaves ? to : from, device_);
  REIGEN_CHECK(place != Place::kOtherDevice,
               "the memory is on another device\n  got: {}   expected: memory of device {}",
               static_cast<const void*>(leaves ? to : from), device_);
  const OnDevice on(device_);
  if (!stream_) stream_ = std::make_unique<Stream>(device_);
  Event ready(device_);
  ready.record(cudaStreamLegacy);
  ready.precede(stream_->get());
  if (place == Place::kHost) {
    check(api().cuda_stream_synchronize(stream_->get()), "cudaStreamSynchronize");
    std::memcpy(to, from, bytes);
    return;
  }
  if (!piece_) piece_ = allocate_pinned(kPiece);
  for (std::size_t at = 0; at < bytes; at += kPiece) {
    const std::size_t size = std::min(kPiece, bytes - at);
    if (leaves) std::memcpy(piece_.get(), from + at, size);
    void* const into = leaves ? to + at : piece_.get();
    const void* const out_of = leaves ? piece_.get() : from + at;
    check(api().cuda_memcpy_async(into, out_of, size, kind, stream_->get()), "cudaMemcpyAsync");
    check(api().cuda_stream_synchronize(stream_->get()), "cudaStreamSynchronize");
    if (!leaves) std::memcpy(to + at, piece_.get(), size);
  }
}

Place place_of(const void* data, int device) {
  struct {
    cudaPointerAttributes attributes;
    std::byte more[256];  // a newer runtime than that of the headers writes more
  } answer{};
  const cudaPointerAttributes& attributes = answer.attributes;
  check(api().cuda_pointer_get_attributes(&answer.attributes, data), "cudaPointerGetAttributes");
  if (attributes.type == cudaMemoryTypeManaged) return Place::kDevice;
  if (attributes.type != cudaMemoryTypeDevice) return Place::kHost;
  return attributes.device == device ? Place::kDevice : Place::kOtherDevice;
}

}  // namespace reigen::comm::nccl
