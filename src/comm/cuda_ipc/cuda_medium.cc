#include "comm/cuda_ipc/cuda_medium.h"

#include <unistd.h>

#include <cstring>
#include <thread>
#include <utility>

#include "base/check.h"
#include "device/kernels.h"

namespace reigen::comm::cuda_ipc {

using device::cuda_runtime;
using shared_memory::Segment;
using shared_memory::SegmentAddress;

namespace {

constexpr auto kDrainPoll = std::chrono::microseconds(100);

std::int32_t this_process() { return static_cast<std::int32_t>(::getpid()); }

}  // namespace

std::shared_ptr<device::Event> EventPool::take() {
  std::unique_ptr<device::Event> event;
  {
    std::lock_guard lock(free_->mutex);
    if (!free_->events.empty()) {
      event = std::move(free_->events.back());
      free_->events.pop_back();
    }
  }
  if (!event) event = std::make_unique<device::Event>(device_);
  return {event.release(), [free = free_](device::Event* used) {
            std::lock_guard lock(free->mutex);
            free->events.emplace_back(used);
          }};
}

// An event that a job waits for. It counts as waiting from mark() until it was seen to be done.
class Awaited {
 public:
  Awaited(EventPool& pool, std::atomic<int>& waiting) : event_(pool.take()), waiting_(waiting) {}
  ~Awaited() { settle(); }
  Awaited(const Awaited&) = delete;  // it counts
  Awaited& operator=(const Awaited&) = delete;

  void mark(device::CudaStream stream) {
    event_->record(stream);
    if (!std::exchange(pending_, true)) waiting_.fetch_add(1);
  }
  bool is_done(const char* what) {
    if (pending_ && event_->is_done(what)) settle();
    return !pending_;
  }

 private:
  void settle() {
    if (std::exchange(pending_, false)) waiting_.fetch_sub(1);
  }

  const std::shared_ptr<device::Event> event_;
  std::atomic<int>& waiting_;
  bool pending_ = false;
};

class CudaJob final : public shared_memory::Job {
 public:
  CudaJob(std::shared_ptr<CudaMedium> medium, const Stream& after) : medium_(std::move(medium)) {
    const device::OnDevice on(medium_->device_);
    before_.mark(device::handle_of(after));
  }

  bool is_ready() override { return before_.is_done("what comes before a call"); }

  void reduce(const reduce::Pass& pass) override {
    const device::OnDevice on(medium_->device_);
    const device::ReduceCall call{.inputs = reinterpret_cast<const void* const*>(pass.inputs),
                                  .outputs = reinterpret_cast<void* const*>(pass.outputs),
                                  .input_count = pass.input_count,
                                  .output_count = pass.output_count,
                                  .count = pass.count,
                                  .type = static_cast<int>(pass.type),
                                  .op = static_cast<int>(pass.op),
                                  .factors = pass.factors,
                                  .divisor = pass.divisor};
    device::check(device::kernels().reduce(&call, medium_->stream_.get()), "a reduction on the device");
  }

  void copy(std::byte* to, const std::byte* from, std::size_t bytes) override {
    const device::OnDevice on(medium_->device_);
    device::check(cuda_runtime().memcpy_async(to, from, bytes, device::kCudaDeviceToDevice, medium_->stream_.get()),
                  "cudaMemcpyAsync");
  }

  void close_part() override {
    const device::OnDevice on(medium_->device_);
    part_.mark(medium_->stream_.get());
  }
  bool is_done() override { return part_.is_done("a call on the device"); }

 private:
  const std::shared_ptr<CudaMedium> medium_;
  Awaited before_{medium_->events_, medium_->waiting_};
  Awaited part_{medium_->events_, medium_->waiting_};
};

CudaMedium::CudaMedium(int device) : device_(device), stream_(device), events_(device) { (void)device::kernels(); }

int CudaMedium::most_ranks() const { return device::kReduceRanks; }

// A word of the driver names a whole allocation, so a segment is one of its own: 2 MiB and more are.
std::shared_ptr<Segment> CudaMedium::create(std::size_t size) {
  std::shared_ptr<void> memory = device::allocate(device_, size);
  const device::OnDevice on(device_);
  device::CudaMemoryWord word{};
  device::check(cuda_runtime().ipc_get_mem_handle(&word, memory.get()), "cudaIpcGetMemHandle");
  SegmentAddress address;
  address.pid = this_process();
  address.inode = reinterpret_cast<std::uintptr_t>(memory.get());
  address.size = size;
  static_assert(sizeof(word) == sizeof(address.word));
  std::memcpy(address.word.data(), &word, sizeof(word));
  return Segment::of(std::move(memory), address);
}

std::shared_ptr<Segment> CudaMedium::open(const SegmentAddress& address) {
  const device::OnDevice on(device_);
  if (address.pid == this_process()) {
    std::shared_ptr<Segment> segment = Segment::here(address);
    device::reach(device_, device::device_of(segment->data()).index);
    return segment;
  }
  device::CudaMemoryWord word{};
  std::memcpy(&word, address.word.data(), sizeof(word));
  void* data = nullptr;
  const int code = cuda_runtime().ipc_open_mem_handle(&data, word, device::kCudaIpcLazyPeerAccess);
  if (code != device::kCudaSuccess) {
    throw IoError(Report{.what = fmt::format("cannot open the device memory of process {}", address.pid),
                         .got = fmt::format("{} ({})", cuda_runtime().get_error_string(code), code),
                         .expected = "a process of this machine that lives, on a GPU that this one can reach",
                         .fix = "see whether that process has ended; else GroupOptions::device_backend = \"nccl\""},
                  ExitCode::kPeerLost);
  }
  std::shared_ptr<void> memory(data, [device = device_](void* begin) {
    const device::OnDevice here(device);
    (void)cuda_runtime().ipc_close_mem_handle(begin);
  });
  return Segment::of(std::move(memory), address);
}

void CudaMedium::zero(std::byte* data, std::size_t bytes) {
  const device::OnDevice on(device_);
  device::check(cuda_runtime().memset_async(data, 0, bytes, stream_.get()), "cudaMemsetAsync");
  device::check(cuda_runtime().stream_synchronize(stream_.get()), "cudaStreamSynchronize");
}

std::unique_ptr<shared_memory::Job> CudaMedium::begin(const Stream& after) {
  return std::make_unique<CudaJob>(shared_from_this(), after);
}

bool CudaMedium::drain(std::chrono::nanoseconds limit) {
  const Deadline deadline = Deadline::after(limit);
  while (!stream_.is_idle()) {
    if (deadline.expired()) return false;
    std::this_thread::sleep_for(kDrainPoll);
  }
  return true;
}

}  // namespace reigen::comm::cuda_ipc
