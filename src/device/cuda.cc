#include "device/cuda.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/environment.h"
#include "base/text.h"
#include "reigen/base/bytes.h"

namespace reigen::device {

namespace {

thread_local bool keeps_device = false;

// CUDA's text for the error `code`. If the driver is too old, the text also names the CUDA versions of driver and
// runtime.
std::string reason_of(int code) {
  std::string reason = cuda_runtime().get_error_string(code);
  int driver = 0;
  int runtime = 0;
  if (code == kCudaInsufficientDriver && cuda_runtime().driver_get_version(&driver) == kCudaSuccess &&
      cuda_runtime().runtime_get_version(&runtime) == kCudaSuccess) {
    reason += driver == 0 ? "; there is no driver of NVIDIA, or it is not loaded"
                          : fmt::format("; the driver runs CUDA {}, the runtime is {}", version_text(driver),
                                        version_text(runtime));
  }
  return reason;
}

std::string shown_by_variable() {
  const auto visible = base::get_environment("CUDA_VISIBLE_DEVICES");
  return visible ? fmt::format(", CUDA_VISIBLE_DEVICES=\"{}\"", *visible) : "";
}

std::string fix_of(int code) {
  if (is_fault(code)) return kFixOfFault;
  if (code == kCudaDevicesUnavailable) {
    return "the GPU may be in a compute mode in which one process has it for itself (`reigen devices` says so): sudo "
           "nvidia-smi --compute-mode=DEFAULT, or share it by MPS (reigen run --gpus-shared)";
  }
  return "look at the device with nvidia-smi, and at the messages before this one";
}

}  // namespace

bool is_fault(int code) {
  constexpr std::array kFaults = {700, 702, 710, 714, 715,
                                  716, 717, 718, 719};  // an illegal address, an assertion, ...
  return std::find(kFaults.begin(), kFaults.end(), code) != kFaults.end();
}

void check(int code, const char* function) {
  if (code == kCudaSuccess) return;
  forget_error();
  throw BackendError(Report{.what = fmt::format("{} failed", function),
                            .got = fmt::format("{} ({})", cuda_runtime().get_error_string(code), code),
                            .expected = {},
                            .fix = fix_of(code)});
}

int attribute_of(int device, int attribute) {
  int value = 0;
  check(cuda_runtime().device_get_attribute(&value, attribute, device), "cudaDeviceGetAttribute");
  return value;
}

std::string version_text(int number) { return fmt::format("{}.{}", number / 1000, number % 1000 / 10); }

int choose_cuda(int wanted, int rank) {
  int count = 0;
  const int code = cuda_runtime().get_device_count(&count);
  if (code != kCudaSuccess || count == 0) {
    throw BackendError(no_gpu(code, "`reigen devices` says what is missing; or stay with the cpu"));
  }
  if (wanted < 0) return rank % count;
  if (wanted < count) return wanted;
  throw InvalidArgument(Report{.what = fmt::format("GPU {} is not visible", wanted),
                               .got = fmt::format("{}{}", base::counted(count, "visible GPU"), shown_by_variable()),
                               .expected = count == 1 ? "cuda:0, or cuda for the GPU of the rank"
                                                      : fmt::format("cuda:0 to cuda:{}, or cuda", count - 1),
                               .fix = "`reigen devices` lists the visible GPUs"});
}

bool has_gpu() {
  try {
    int count = 0;
    return cuda_runtime().get_device_count(&count) == kCudaSuccess && count > 0;
  } catch (const BackendError&) {
    return false;  // there is no CUDA runtime
  }
}

Report no_gpu(int code, std::string fix) {
  return {.what = "no GPU is visible",
          .got = (code != kCudaSuccess ? reason_of(code) : "0 GPUs") + shown_by_variable(),
          .expected = "a GPU, and a driver at least as new as the CUDA runtime",
          .fix = std::move(fix)};
}

void require_usable(int device, bool in_bf16) {
  constexpr int kLeast = 75;
  constexpr int kLeastForBf16 = 80;
  const int major = attribute_of(device, kCudaCapabilityMajor);
  const int minor = attribute_of(device, kCudaCapabilityMinor);
  const int capability = 10 * major + minor;
  const std::string got = fmt::format("compute capability {}.{} of {}", major, minor, place_of(device));
  if (capability < kLeast) {
    throw BackendError(Report{.what = "the GPU is too old for Reigen's kernels",
                              .got = got,
                              .expected = "7.5 or newer",
                              .fix = "choose another GPU (`reigen devices` lists them), or train.device cpu"});
  }
  if (attribute_of(device, kCudaComputeMode) == kCudaProhibited) {
    throw BackendError(Report{.what = "no process may use this GPU",
                              .got = "compute mode prohibited of " + place_of(device),
                              .expected = "compute mode default",
                              .fix = "sudo nvidia-smi --compute-mode=DEFAULT, or choose another GPU"});
  }
  if (in_bf16 && capability < kLeastForBf16) {
    throw InvalidArgument(Report{.what = "the GPU does not compute in bf16",
                                 .got = got,
                                 .expected = "8.0 or newer",
                                 .fix = "train.precision fp16 or fp32"});
  }
}

base::AvailableMemory available_memory(int device) {
  const OnDevice on(device);
  std::size_t free = 0;
  std::size_t total = 0;
  check(cuda_runtime().mem_get_info(&free, &total), "cudaMemGetInfo");
  const std::string place = place_of(device);
  return {.bytes = free, .source = "free memory of " + place, .identity = place};
}

std::string place_of(int device) {
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  return fmt::format("host {}, GPU {}", host.data(), bus_of(device));
}

std::string bus_of(int device) {
  std::array<char, 32> bus{};
  check(cuda_runtime().device_get_pci_bus_id(bus.data(), static_cast<int>(bus.size()), device),
        "cudaDeviceGetPCIBusId");
  return bus.data();
}

OnDevice::OnDevice(int device) {
  check(cuda_runtime().get_device(&before_), "cudaGetDevice");
  if (before_ == device) return;
  check(cuda_runtime().set_device(device), "cudaSetDevice");
  restores_ = !keeps_device;
}

OnDevice::~OnDevice() {
  if (restores_) (void)cuda_runtime().set_device(before_);
}

void keep_device_of_this_thread() { keeps_device = true; }

Event::Event(int device, Kind kind) {
  const OnDevice on(device);
  const unsigned flags = kind == Kind::kTimed ? 0 : kCudaEventDisableTiming;
  check(cuda_runtime().event_create_with_flags(&event_, flags), "cudaEventCreate");
}
Event::~Event() { (void)cuda_runtime().event_destroy(event_); }
void Event::record(CudaStream stream) { check(cuda_runtime().event_record(event_, stream), "cudaEventRecord"); }
void Event::precede(CudaStream stream) const {
  check(cuda_runtime().stream_wait_event(stream, event_, 0), "cudaStreamWaitEvent");
}

bool Event::is_done(const char* what) const {
  const int state = cuda_runtime().event_query(event_);
  if (state == kCudaNotReady) return false;
  check(state, what);
  return true;
}

double Event::milliseconds_since(const Event& begin) const {
  float milliseconds = 0;
  check(cuda_runtime().event_elapsed_time(&milliseconds, begin.event_, event_), "cudaEventElapsedTime");
  return milliseconds;
}

OwnStream::OwnStream(int device) {
  const OnDevice on(device);
  check(cuda_runtime().stream_create_with_flags(&stream_, kCudaStreamNonBlocking), "cudaStreamCreate");
}
OwnStream::~OwnStream() { (void)cuda_runtime().stream_destroy(stream_); }

namespace {
std::atomic<void (*)()> release_kept{nullptr};
}  // namespace

void release_by(void (*release)()) { release_kept.store(release); }

void make_room(int device, std::size_t bytes) {
  auto* const release = release_kept.load();
  if (release != nullptr && available_memory(device).bytes < bytes) release();
}

std::shared_ptr<void> allocate(int device, std::size_t bytes) {
  const OnDevice on(device);
  void* data = nullptr;
  const std::size_t size = std::max<std::size_t>(bytes, 1);
  const int code = cuda_runtime().malloc(&data, size);
  if (code == kCudaOutOfMemory) {
    forget_error();
    throw IoError(Report{.what = "out of memory of the GPU",
                         .got = {},
                         .expected = fmt::format("{} more", format_bytes(size)),
                         .fix = "take a smaller model or batch"},
                  ExitCode::kOsResource);
  }
  check(code, "cudaMalloc");
  std::shared_ptr<void> block(
      data, [device](void* pointer) { on_device_or_not(device, [pointer] { (void)cuda_runtime().free(pointer); }); });
  const OwnStream stream(device);  // not the default stream, which may have much work to do first
  check(cuda_runtime().memset_async(data, 0, size, stream.get()), "cudaMemsetAsync");
  check(cuda_runtime().stream_synchronize(stream.get()), "cudaStreamSynchronize");
  return block;
}

std::shared_ptr<void> allocate_pinned(std::size_t bytes) {
  void* data = nullptr;
  const int code = cuda_runtime().malloc_host(&data, bytes);
  if (code == kCudaOutOfMemory) {
    forget_error();
    throw IoError(Report{.what = "out of memory of the host that can be pinned",
                         .got = {},
                         .expected = fmt::format("{} more", format_bytes(bytes)),
                         .fix = "free memory of the host, or raise its limit of locked memory"},
                  ExitCode::kOsResource);
  }
  check(code, "cudaMallocHost");
  return {data, [](void* pointer) { (void)cuda_runtime().free_host(pointer); }};
}

void reach(int device, int other) {
  if (device == other) return;
  const OnDevice on(device);
  const int code = cuda_runtime().device_enable_peer_access(other, 0);
  if (code == kCudaSuccess) return;
  forget_error();
  if (code == kCudaPeerAccessAlreadyEnabled) return;
  throw BackendError(Report{.what = fmt::format("cuda:{} does not reach the memory of cuda:{}", device, other),
                            .got = fmt::format("{} ({})", cuda_runtime().get_error_string(code), code),
                            .expected = "GPUs with a way to each other (nvidia-smi topo -p2p r)",
                            .fix = "GroupOptions::device_backend = \"nccl\""});
}

// Host memory is copied through a pinned staging buffer. Without this buffer the driver would copy pageable memory
// through its own staging buffers, in the order of the default stream.
void copy(void* to, const void* from, std::size_t bytes) {
  if (bytes == 0) return;
  const Device target = device_of(to);
  const Device source = device_of(from);
  if (target.is_cpu() && source.is_cpu()) {
    std::memcpy(to, from, bytes);
    return;
  }
  const int device = target.is_cpu() ? source.index : target.index;
  const OnDevice on(device);
  const OwnStream stream(device);
  Event ready(device);
  ready.record(default_stream());
  ready.precede(stream.get());
  const auto move = [&](void* into, const void* out_of, std::size_t size, int kind) {
    check(cuda_runtime().memcpy_async(into, out_of, size, kind, stream.get()), "cudaMemcpyAsync");
    check(cuda_runtime().stream_synchronize(stream.get()), "cudaStreamSynchronize");
  };
  if (!target.is_cpu() && !source.is_cpu()) return move(to, from, bytes, kCudaDeviceToDevice);
  constexpr std::size_t kPiece = std::size_t{4} << 20;
  const std::shared_ptr<void> piece = allocate_pinned(std::min(kPiece, bytes));
  for (std::size_t at = 0; at < bytes; at += kPiece) {
    const std::size_t size = std::min(kPiece, bytes - at);
    auto* const into = static_cast<std::byte*>(to) + at;
    const auto* const out_of = static_cast<const std::byte*>(from) + at;
    if (source.is_cpu()) {
      std::memcpy(piece.get(), out_of, size);
      move(into, piece.get(), size, kCudaHostToDevice);
    } else {
      move(piece.get(), out_of, size, kCudaDeviceToHost);
      std::memcpy(into, piece.get(), size);
    }
  }
}

Device device_of(const void* data) {
  CudaPointer answer{};
  check(cuda_runtime().pointer_get_attributes(&answer, data), "cudaPointerGetAttributes");
  const bool is_of_device = answer.memory == kCudaMemoryOfDevice || answer.memory == kCudaMemoryManaged;
  return is_of_device ? Device::cuda(answer.device) : Device::cpu();
}

}  // namespace reigen::device
