// What belongs to one CUDA device: its streams, events, memory, and copies between it and the host.
// Thread rule: any thread; CUDA's current device belongs to a thread.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "device/cuda_runtime.h"
#include "reigen/device/device.h"

namespace reigen::device {

// The index of the device that a rank takes: `wanted` modulo those that are visible (a scheduler may show each rank
// one), or the rank's own number modulo these when it is negative. Throws BackendError (69) when none is visible or
// CUDA is not installed.
int choose_cuda(int wanted, int rank);
// "host a, GPU 0000:3b:00.0".
std::string place_of(int device);

// Makes `device` current while it lives.
class OnDevice {
 public:
  explicit OnDevice(int device);
  ~OnDevice();
  OnDevice(const OnDevice&) = delete;  // it restores what was
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  int before_ = 0;
  bool restores_ = false;
};

// From now on CUDA's current device of this thread is left as OnDevice has made it: for threads of Reigen's own. To
// restore what they had would make a context on GPU 0.
void keep_device_of_this_thread();

// Runs `action` with the device current where that can be; never throws. For what gives something back.
template <typename Action>
void on_device_or_not(int device, const Action& action) {
  int before = 0;
  const bool changed = cuda_runtime().get_device(&before) == kCudaSuccess && before != device &&
                       cuda_runtime().set_device(device) == kCudaSuccess;
  action();
  if (changed) (void)cuda_runtime().set_device(before);
}

// As CUDA names it.
inline CudaStream handle_of(const Stream& stream) {
  return stream.handle != nullptr ? stream.handle : default_stream();
}

// A place on a stream: done when everything that was on the stream before it is.
class Event {
 public:
  explicit Event(int device);
  ~Event();
  Event(const Event&) = delete;  // it is CUDA's
  Event& operator=(const Event&) = delete;

  void record(CudaStream stream);
  // What comes on `stream` from now on waits for it.
  void precede(CudaStream stream) const;
  // True also before the first record(). Throws BackendError, naming `what`, when the device has failed.
  bool is_done(const char* what) const;

 private:
  CudaEvent event_ = nullptr;
};

// Work of a device, one thing after the other, in no order with that of other streams.
class OwnStream {
 public:
  explicit OwnStream(int device);
  ~OwnStream();
  OwnStream(const OwnStream&) = delete;  // it is CUDA's
  OwnStream& operator=(const OwnStream&) = delete;

  CudaStream get() const { return stream_; }
  bool is_idle() const { return cuda_runtime().stream_query(stream_) != kCudaNotReady; }

 private:
  CudaStream stream_ = nullptr;
};

// Zeroed memory of the device, freed with its last owner.
std::shared_ptr<void> allocate(int device, std::size_t bytes);
// Memory of the host that the device copies to and from by itself.
std::shared_ptr<void> allocate_pinned(std::size_t bytes);

// From now on kernels of `device` reach memory of the other one. Throws BackendError where the two have no way to each
// other.
void reach(int device, int other);

// Copies `bytes` between memory of the host, of any kind, and of the devices, whichever lies where: after what the
// default stream of the device has to do until now. Returns when the copy is done.
void copy(void* to, const void* from, std::size_t bytes);

// Whose memory a pointer is.
Device device_of(const void* data);

}  // namespace reigen::device
