// The CUDA device of a group, and what goes wrong with it.
// Thread rule: any thread; CUDA's current device belongs to a thread.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "comm/nccl/api.h"

namespace reigen::comm::nccl {

// Throw BackendError with CUDA's or NCCL's own words.
void check(cudaError_t code, const char* function);
void check(ncclResult_t code, const char* function, ncclComm_t communicator = nullptr);

// `wanted` modulo those that are visible (a scheduler may show each rank one), or the caller's current device when it
// is negative. Throws BackendError (69) when none is visible, or when NCCL or CUDA is not installed.
int choose_device(int wanted);
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
};

// A place on a stream: done when everything that was on the stream before it is.
class Event {
 public:
  explicit Event(int device);
  ~Event();
  Event(const Event&) = delete;  // it is CUDA's
  Event& operator=(const Event&) = delete;

  void record(cudaStream_t stream);
  // What comes on `stream` from now on waits for it.
  void precede(cudaStream_t stream) const;
  // True also before the first record(). Throws BackendError, naming `what`, when the device has failed.
  bool is_done(const char* what) const;

 private:
  cudaEvent_t event_ = nullptr;
};

// Work of a device, one thing after the other, in no order with that of other streams.
class Stream {
 public:
  explicit Stream(int device);
  ~Stream();
  Stream(const Stream&) = delete;  // it is CUDA's
  Stream& operator=(const Stream&) = delete;

  cudaStream_t get() const { return stream_; }
  bool is_idle() const { return api().cuda_stream_query(stream_) != cudaErrorNotReady; }

 private:
  cudaStream_t stream_ = nullptr;
};

// Zeroed memory of the device, freed with its last owner.
std::shared_ptr<void> allocate(int device, std::size_t bytes);
// Memory of the host that the device copies to and from by itself.
std::shared_ptr<void> allocate_pinned(std::size_t bytes);

// Copies between memory of the host, of any kind, and of a device, a piece at a time through pinned memory.
// Thread rule: one caller at a time.
class Carrier {
 public:
  explicit Carrier(int device) : device_(device) {}

  // After what the caller's default stream has to do until now; returns when the copy is done. Memory of the host may
  // stand on the device's side: small buffers of a program lie anywhere.
  void to_device(void* to, const void* from, std::size_t bytes);
  void to_host(void* to, const void* from, std::size_t bytes);

 private:
  static constexpr std::size_t kPiece = std::size_t{4} << 20;
  void copy(std::byte* to, const std::byte* from, std::size_t bytes, cudaMemcpyKind kind);

  const int device_;
  std::unique_ptr<Stream> stream_;  // made by the first copy
  std::shared_ptr<void> piece_;
};

enum class Place { kDevice, kHost, kOtherDevice };
Place place_of(const void* data, int device);

}  // namespace reigen::comm::nccl
