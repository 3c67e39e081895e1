// A GPU as a Medium: segments are memory of the device that other processes open by the driver's word for it, and a
// job's sums and copies run one after the other on one stream, on which nothing waits for another rank. Ranks wait on
// the host, so a GPU that several processes share is never held by one that waits. Thread rule: as Medium.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "comm/shared_memory/medium.h"
#include "device/cuda.h"

namespace reigen::comm::cuda_ipc {

// Events that jobs use again: to make one takes longer than to record it.
class EventPool {
 public:
  explicit EventPool(int device) : device_(device) {}
  // Goes back with its last owner.
  std::shared_ptr<device::Event> take();

 private:
  struct Free {
    std::mutex mutex;
    std::vector<std::unique_ptr<device::Event>> events;
  };
  const int device_;
  const std::shared_ptr<Free> free_ = std::make_shared<Free>();
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
  std::unique_ptr<shared_memory::Job> begin(const Stream& after) override;
  bool is_busy() const override { return waiting_.load() > 0; }
  bool drain(std::chrono::nanoseconds limit) override;

 private:
  friend class CudaJob;

  const std::string name_ = "cuda_ipc";
  const int device_;
  const device::OwnStream stream_;
  EventPool events_;
  std::atomic<int> waiting_{0};  // events that jobs wait for
};

}  // namespace reigen::comm::cuda_ipc
