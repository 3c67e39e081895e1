#include "comm/cuda_ipc/cuda_medium.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <new>
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
constexpr auto kLookEvery = std::chrono::milliseconds(2);  // interval between two checks whether the device has failed
constexpr std::size_t kFlagPage = 4096;
constexpr std::size_t kLine = 64;

std::int32_t this_process() { return static_cast<std::int32_t>(::getpid()); }

}  // namespace

FlagPool::~FlagPool() {
  if (has_abandoned_) new std::vector<std::shared_ptr<void>>(std::move(pages_));  // leaked: a stream may write there
}

std::unique_ptr<Flag> FlagPool::take() {
  std::lock_guard lock(mutex_);
  if (free_.empty()) {
    pages_.push_back(device::allocate_pinned(kFlagPage));
    auto* const page = static_cast<std::byte*>(pages_.back().get());
    for (std::size_t at = 0; at < kFlagPage; at += kLine) {
      free_.push_back(std::make_unique<Flag>(Flag{.word = new (page + at) std::atomic<std::uint32_t>(0)}));
    }
  }
  std::unique_ptr<Flag> flag = std::move(free_.back());
  free_.pop_back();
  return flag;
}

void FlagPool::give_back(std::unique_ptr<Flag> flag) {
  std::lock_guard lock(mutex_);
  free_.push_back(std::move(flag));
}

void FlagPool::abandon(std::unique_ptr<Flag> /*flag*/) {
  std::lock_guard lock(mutex_);
  has_abandoned_ = true;
}

// A point in the work of a stream. When the stream reaches the point, it writes a flag, which the host reads.
class Awaited {
 public:
  explicit Awaited(std::shared_ptr<CudaMedium> medium) : medium_(std::move(medium)) {}
  ~Awaited() {
    if (pending_) {
      settle();
      medium_->flags_.abandon(std::move(flag_));
    } else if (flag_) {
      medium_->flags_.give_back(std::move(flag_));
    }
  }
  Awaited(const Awaited&) = delete;  // it is counted in waiting_ and owns a flag
  Awaited& operator=(const Awaited&) = delete;

  // Sets the point after the work that is on the stream now. The caller must have made the medium's device current.
  void mark(device::CudaStream stream) {
    if (!flag_) flag_ = medium_->flags_.take();
    flag_->value += 1;
    device::check(device::cuda_driver().stream_write_value(stream, flag_->address(), flag_->value, 0),
                  "cuStreamWriteValue32");
    if (!std::exchange(pending_, true)) medium_->waiting_.fetch_add(1);
    const auto now = Deadline::Clock::now();
    medium_->marked_.store(now);
    next_look_ = now + kLookEvery;
  }
  // Whether the stream has reached the point. Throws BackendError, naming `what`, when the device has failed.
  bool is_done(const char* what) {
    if (!pending_) return true;
    if (flag_->word->load(std::memory_order_acquire) == flag_->value) {
      settle();
      return true;
    }
    if (Deadline::Clock::now() > next_look_) {
      const int state = cuda_runtime().stream_query(medium_->stream_.get());
      if (state != device::kCudaNotReady) device::check(state, what);
      next_look_ = Deadline::Clock::now() + kLookEvery;
    }
    return false;
  }

 private:
  void settle() {
    pending_ = false;
    medium_->waiting_.fetch_sub(1);
  }

  const std::shared_ptr<CudaMedium> medium_;
  std::unique_ptr<Flag> flag_;  // taken from the pool by the first mark()
  bool pending_ = false;
  Deadline::Clock::time_point next_look_ = {};
};

class CudaBefore final : public Before {
 public:
  CudaBefore(std::shared_ptr<CudaMedium> medium, device::CudaStream stream) : place_(std::move(medium)) {
    place_.mark(stream);
  }
  bool is_done() override { return place_.is_done("what comes before a call"); }

 private:
  Awaited place_;
};

class CudaJob final : public shared_memory::Job {
 public:
  explicit CudaJob(std::shared_ptr<CudaMedium> medium) : medium_(std::move(medium)) {}
  ~CudaJob() override {
    for (std::unique_ptr<Flag>& flag : followed_) {
      flag->word->store(flag->value, std::memory_order_release);
      medium_->flags_.give_back(std::move(flag));
    }
  }

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

  // The stream waits until the flag is at least `value`, which the destructor writes. The flag may be reused right
  // after that write, even if the stream has not read it yet, because the values of a flag only grow.
  void precede(const Stream& stream) override {
    const device::OnDevice on(medium_->device_);
    std::unique_ptr<Flag> flag = medium_->flags_.take();
    flag->value += 1;
    device::check(device::cuda_driver().stream_wait_value(device::handle_of(stream), flag->address(), flag->value, 0),
                  "cuStreamWaitValue32");
    followed_.push_back(std::move(flag));
  }

 private:
  const std::shared_ptr<CudaMedium> medium_;
  Awaited part_{medium_};
  std::vector<std::unique_ptr<Flag>> followed_;  // flags that streams wait for
};

CudaMedium::CudaMedium(int device) : device_(device), stream_(device) {
  (void)device::kernels();
  (void)device::cuda_driver();
}

int CudaMedium::most_ranks() const { return device::kReduceRanks; }

// An IPC handle opens a whole allocation of the CUDA driver, so a segment must be an allocation of its own. It is,
// because a heap asks for segments of 2 MiB or more, and the driver makes an allocation for each request of that size.
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
    device::forget_error();
    throw IoError(Report{.what = fmt::format("cannot open the device memory of process {}", address.pid),
                         .got = fmt::format("{} ({})", cuda_runtime().get_error_string(code), code),
                         .expected = "a process of this machine that lives, on a GPU that this one can reach",
                         .fix = "see whether that process has ended; else GroupOptions::device_backend = \"nccl\""},
                  ExitCode::kPeerLost);
  }
  std::shared_ptr<void> memory(data, [device = device_](void* begin) {
    device::on_device_or_not(device, [begin] { (void)cuda_runtime().ipc_close_mem_handle(begin); });
  });
  return Segment::of(std::move(memory), address);
}

void CudaMedium::zero(std::byte* data, std::size_t bytes) {
  const device::OnDevice on(device_);
  device::check(cuda_runtime().memset_async(data, 0, bytes, stream_.get()), "cudaMemsetAsync");
  device::check(cuda_runtime().stream_synchronize(stream_.get()), "cudaStreamSynchronize");
}

std::shared_ptr<Before> CudaMedium::mark(const Stream& after) {
  const device::OnDevice on(device_);
  device::CudaStream stream = device::handle_of(after);
  const int state = cuda_runtime().stream_query(stream);
  if (state == device::kCudaSuccess) return nullptr;
  if (state != device::kCudaNotReady) device::check(state, "the stream before a call");  // throws in a stream capture
  device::forget_error();
  return std::make_shared<CudaBefore>(shared_from_this(), stream);
}

std::unique_ptr<shared_memory::Job> CudaMedium::begin() { return std::make_unique<CudaJob>(shared_from_this()); }

std::chrono::nanoseconds CudaMedium::busy_for() const {
  if (waiting_.load() == 0) return std::chrono::nanoseconds(0);
  return std::max<std::chrono::nanoseconds>(Deadline::Clock::now() - marked_.load(), std::chrono::nanoseconds(1));
}

// Groups that are split from this one use the same stream. drain() does not wait for work that such a group enqueues
// after drain() has marked the end.
bool CudaMedium::drain(std::chrono::nanoseconds limit) {
  const Deadline deadline = Deadline::after(limit);
  try {
    const device::OnDevice on(device_);
    Awaited end(shared_from_this());
    end.mark(stream_.get());
    while (!end.is_done("what a group asked for")) {
      if (deadline.expired()) return false;
      std::this_thread::sleep_for(kDrainPoll);
    }
  } catch (const BackendError&) {  // the device has failed and no longer accesses memory
  }
  return true;
}

}  // namespace reigen::comm::cuda_ipc
