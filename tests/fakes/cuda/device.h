// The devices of the stand-in: streams are threads with a queue, and device memory is memory of the host.
// Thread rule: any thread.
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <chrono>
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
int cuDeviceGetName(char* name, int length, int device);
int cuDeviceTotalMem_v2(std::size_t* bytes, int device);
}

namespace reigen::testing::stand_in {

// Ends the process, because the caller made a call that has no meaning.
[[noreturn]] void die(const std::string& what);

// The numbers of living objects that the caller must free.
struct Living {
  std::atomic<int> communicators{0};
  std::atomic<int> streams{0};
  std::atomic<int> events{0};
  std::atomic<int> blocks{0};
};
Living& living();

// The tasks of a stream, which run one after the other.
class Queue {
 public:
  explicit Queue(int device);
  ~Queue();  // waits until all tasks are done
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  int device() const { return device_; }
  void push(std::function<void()> task);
  // From now on it is a stream on which the program computes: delay_streams() delays it longer than others.
  void set_computes() { computes_ = true; }
  bool is_idle();
  void wait_until_idle();

 private:
  void run();
  std::chrono::microseconds next_delay();

  const int device_;
  const int number_;  // of the queue, from 1, in the order in which queues are made
  std::uint64_t tasks_done_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  bool working_ = false;
  bool stopping_ = false;
  int waiting_ = 0;  // threads in wait_until_idle()
  std::atomic<bool> computes_{false};
  std::thread worker_;
};

// A function that frees what a cache over the stand-in keeps on a device. leave_memory() calls it.
void set_cache(void (*empty)(int device));

// The queue of the stream; for the default stream, that of the current device.
Queue& queue_of(cudaStream_t stream);
int device_now();

// Waits until the device has nothing to do. cudaFree and every other function that frees memory do this.
void wait_until_idle(int device);

// The address at which a kernel finds the memory at `data`. It is another one if the memory is hidden from the host.
std::byte* reach(const void* data);

// A word of pinned memory that a stream writes or waits for.
std::atomic<std::uint32_t>& word_at(unsigned long long address);

// Ends the process unless all bytes are memory that is not freed, of the device or of one to which it has peer access
// (-1: pinned memory of the host).
void require_memory(const void* data, std::size_t bytes, int device, const char* what);

}  // namespace reigen::testing::stand_in
