// A GPU as a Medium: segments are memory of the device that other processes open by the driver's word for it, and a
// job's sums and copies run one after the other on one stream, on which nothing waits for another rank. Ranks wait on
// the host, so a GPU that several processes share is never held by one that waits. Thread rule: as Medium.
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

// A word of the host's memory that a stream writes, or waits for: to look at it asks the driver nothing.
struct Flag {
  std::atomic<std::uint32_t>* word = nullptr;
  std::uint32_t value = 0;  // of its last user

  unsigned long long address() const { return reinterpret_cast<std::uintptr_t>(word); }
};

// Flags that are used again. Thread rule: any thread.
class FlagPool {
 public:
  FlagPool() = default;
  ~FlagPool();
  FlagPool(const FlagPool&) = delete;  // flags point into it
  FlagPool& operator=(const FlagPool&) = delete;

  std::unique_ptr<Flag> take();
  void give_back(std::unique_ptr<Flag> flag);
  // A stream has yet to write it: its memory stays until the process ends.
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
  std::atomic<int> waiting_{0};                                               // flags that jobs wait for
  std::atomic<Deadline::Clock::time_point> marked_ = Deadline::Clock::now();  // the last of them
};

}  // namespace reigen::comm::cuda_ipc
