// Implements Medium (shared_memory/medium.h) for the memory of a GPU. A segment is device memory that other processes
// open by its CUDA IPC handle. The sums and copies of all operations run in order on one stream, and nothing on this
// stream waits for another rank. Ranks wait on the host, so that a waiting process never occupies a GPU that several
// processes share.
// Thread rule: as for Medium.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "comm/shared_memory/medium.h"
#include "device/cuda.h"
#include "reigen/base/deadline.h"

namespace reigen::comm::cuda_ipc {

// A 32-bit word of pinned host memory. Either a stream writes it and the host reads it, or the host writes it and a
// stream waits for the value. The host reads or writes it without a call of the CUDA driver.
struct Flag {
  std::atomic<std::uint32_t>* word = nullptr;
  std::uint32_t value = 0;  // the last value that a stream was told to write or to wait for

  unsigned long long address() const { return reinterpret_cast<std::uintptr_t>(word); }
};

// A pool of flags, which are reused. Thread rule: any thread.
class FlagPool {
 public:
  FlagPool() = default;
  ~FlagPool();
  FlagPool(const FlagPool&) = delete;  // flags point into its pages
  FlagPool& operator=(const FlagPool&) = delete;

  std::unique_ptr<Flag> take();
  void give_back(std::unique_ptr<Flag> flag);
  // Gives up a flag that a stream may still write. The pool's memory is then kept until the process ends.
  void abandon(std::unique_ptr<Flag> flag);

 private:
  std::mutex mutex_;
  std::vector<std::shared_ptr<void>> pages_;
  std::vector<std::unique_ptr<Flag>> free_;
  bool has_abandoned_ = false;
};

class CudaMedium final : public shared_memory::Medium, public std::enable_shared_from_this<CudaMedium> {
 public:
  explicit CudaMedium(int device);

  const std::string& name() const override { return name_; }
  Device device() const override { return Device::cuda(device_); }
  int most_ranks() const override;
  std::shared_ptr<shared_memory::Segment> create(std::size_t size) override;
  std::shared_ptr<shared_memory::Segment> open(const shared_memory::SegmentAddress& address) override;
  void zero(std::byte* data, std::size_t bytes) override;
  std::shared_ptr<Before> mark(const Stream& after) override;
  std::unique_ptr<shared_memory::Job> begin() override;
  std::chrono::nanoseconds busy_for() const override;
  bool drain(std::chrono::nanoseconds limit) override;

 private:
  friend class Awaited;
  friend class CudaJob;

  const std::string name_ = "cuda_ipc";
  const int device_;
  FlagPool flags_;
  const device::OwnStream stream_;
  std::atomic<int> waiting_{0};                                               // flags that a stream must still write
  std::atomic<Deadline::Clock::time_point> marked_ = Deadline::Clock::now();  // when Awaited::mark() last ran
};

}  // namespace reigen::comm::cuda_ipc
