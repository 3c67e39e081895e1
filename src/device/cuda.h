// The streams, events and memory of one CUDA device, and copies between the device and the host.
// Thread rule: any thread. Each thread has its own current device of CUDA.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "base/machine/available_memory.h"
#include "device/cuda_runtime.h"
#include "reigen/base/error.h"
#include "reigen/device/device.h"

namespace reigen::device {

// The index of the device that a rank takes: `wanted`, or `rank` modulo the number of visible devices if `wanted` is
// negative. Throws InvalidArgument (exit code 78) if fewer devices are visible than `wanted` needs, and BackendError
// with exit code 69 if no device is visible or CUDA is not installed.
int choose_cuda(int wanted, int rank);
// Whether a GPU can be used here: there is a CUDA runtime, and it sees a GPU.
bool has_gpu();
// The report that no GPU is visible. `code` is the answer of cudaGetDeviceCount, `fix` what the user can do here.
Report no_gpu(int code, std::string fix);
// The value of a cudaDeviceAttr of the device.
int attribute_of(int device, int attribute);
// A version number of CUDA, such as 12040, as text: "12.4".
std::string version_text(int number);
// Throws BackendError with exit code 69 if the device cannot be used: its compute capability is below 7.5, which
// Reigen's kernels need, or the administrator has set its compute mode to prohibited. If `in_bf16`, also throws
// InvalidArgument with exit code 78 for a compute capability below 8.0, because such a device does not compute in bf16.
void require_usable(int device, bool in_bf16);
// The free memory of the device. In the result `source` names the device, and `identity` is the same for all ranks on
// one device.
base::AvailableMemory available_memory(int device);
// A text such as "host a, GPU 0000:3b:00.0".
std::string place_of(int device);
// The PCI bus id of the device, such as "0000:3b:00.0".
std::string bus_of(int device);

// Makes `device` current on this thread as long as the object lives.
class OnDevice {
 public:
  explicit OnDevice(int device);
  ~OnDevice();
  OnDevice(const OnDevice&) = delete;  // its destructor restores the previous device, which must happen once
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  int before_ = 0;
  bool restores_ = false;
};

// From now on OnDevice leaves its device current on this thread. For threads that Reigen itself starts: their previous
// device is GPU 0, and making GPU 0 current again would create a CUDA context on GPU 0.
void keep_device_of_this_thread();

// Runs `action` with `device` current. If CUDA refuses this device, `action` runs with the device that is current
// already. Throws nothing itself. For destructors and deleters.
template <typename Action>
void on_device_or_not(int device, const Action& action) {
  int before = 0;
  const bool changed = cuda_runtime().get_device(&before) == kCudaSuccess && before != device &&
                       cuda_runtime().set_device(device) == kCudaSuccess;
  action();
  if (changed) (void)cuda_runtime().set_device(before);
}

// The stream as a cudaStream_t.
inline CudaStream handle_of(const Stream& stream) {
  return stream.handle != nullptr ? stream.handle : default_stream();
}

// A CUDA event: a point in the order of a stream's work. It is done when all work that was enqueued before it is done.
class Event {
 public:
  enum class Kind { kUntimed, kTimed };  // an untimed event costs the device less

  explicit Event(int device, Kind kind = Kind::kUntimed);
  ~Event();
  Event(const Event&) = delete;  // a CUDA event has one owner
  Event& operator=(const Event&) = delete;

  void record(CudaStream stream);
  // Work that is put on `stream` from now on waits for the event.
  void precede(CudaStream stream) const;
  // True also before the first record(). Throws BackendError, naming `what`, when the device has failed.
  bool is_done(const char* what) const;
  // The time on the device from `begin` to this event. Both must be timed and done.
  double milliseconds_since(const Event& begin) const;

 private:
  CudaEvent event_ = nullptr;
};

// A non-blocking stream of a device: its work runs in order, and independently of the work on other streams.
class OwnStream {
 public:
  explicit OwnStream(int device);
  ~OwnStream();
  OwnStream(const OwnStream&) = delete;  // a CUDA stream has one owner
  OwnStream& operator=(const OwnStream&) = delete;

  CudaStream get() const { return stream_; }
  bool is_idle() const { return cuda_runtime().stream_query(stream_) != kCudaNotReady; }

 private:
  CudaStream stream_ = nullptr;
};

// Zeroed memory of the device, freed when the last shared_ptr to it is destroyed.
std::shared_ptr<void> allocate(int device, std::size_t bytes);
// `release` gives memory of the GPUs back that is kept for later use, such as the freed tensors that LibTorch's
// allocator keeps. It counts for all threads of the process.
void release_by(void (*release)());
// Gives kept memory back if fewer bytes of the device are free. This may wait for all work of the GPUs that the process
// uses. So call it on a rank's own thread, without a lock, and not in a hook of backward.
void make_room(int device, std::size_t bytes);
// Pinned host memory, which the device can copy to and from by itself.
std::shared_ptr<void> allocate_pinned(std::size_t bytes);

// Enables peer access: from now on kernels on `device` can use memory of the device `other`. Throws BackendError if the
// hardware does not allow peer access between the two devices.
void reach(int device, int other);

// Copies `bytes` between any two places: each may be memory of a device, or host memory of any kind. A copy from or to
// a device begins after the work that is on the device's default stream now. Returns when the copy is done.
void copy(void* to, const void* from, std::size_t bytes);

// The device to whose memory `data` points; the cpu for host memory.
Device device_of(const void* data);

}  // namespace reigen::device
