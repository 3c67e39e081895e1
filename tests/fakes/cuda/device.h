// The devices of the stand-in: streams are threads with a queue, memory is the host's.
// Thread rule: any thread.
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

extern "C" {
int cuStreamWriteValue32_v2(cudaStream_t stream, unsigned long long address, std::uint32_t value, unsigned int flags);
int cuStreamWaitValue32_v2(cudaStream_t stream, unsigned long long address, std::uint32_t value, unsigned int flags);
}

namespace reigen::testing::stand_in {

// Ends the process: the caller did what has no meaning.
[[noreturn]] void die(const std::string& what);

// How many there are of what the caller must free.
struct Living {
  std::atomic<int> communicators{0};
  std::atomic<int> streams{0};
  std::atomic<int> events{0};
  std::atomic<int> blocks{0};
};
Living& living();

// What a stream does, one thing after the other.
class Queue {
 public:
  explicit Queue(int device);
  ~Queue();  // when all is done
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  int device() const { return device_; }
  void push(std::function<void()> task);
  bool is_idle();
  void wait_until_idle();

 private:
  void run();

  const int device_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  bool working_ = false;
  bool stopping_ = false;
  std::thread worker_;
};

// The stream's, or that of the default stream of the current device.
Queue& queue_of(cudaStream_t stream);
int device_now();

// What cudaFree does, and all that frees memory: waits until the device has nothing to do.
void wait_until_idle(int device);

// Where a kernel finds what lies at `data`: elsewhere when memory is hidden from the host.
std::byte* reach(const void* data);

// A word of pinned memory that a stream writes or waits for.
std::atomic<std::uint32_t>& word_at(unsigned long long address);

// Dies unless all of it is memory of the device (-1: pinned memory of the host) that is not freed.
void require_memory(const void* data, std::size_t bytes, int device, const char* what);

}  // namespace reigen::testing::stand_in
