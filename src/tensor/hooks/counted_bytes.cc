#include "tensor/hooks/counted_bytes.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "base/check.h"

namespace reigen::tensor {

struct CountedBytes::Counter : std::enable_shared_from_this<CountedBytes::Counter> {
  std::atomic<std::int64_t> live = 0;
  std::int64_t peak = 0;  // only the counting thread uses it

  void add(std::int64_t bytes) { peak = std::max(peak, live.fetch_add(bytes) + bytes); }
};

namespace {

// A plain pointer, because tensors may be made after the other thread_local variables of a thread are destroyed.
thread_local CountedBytes::Counter* counting = nullptr;

// The memory blocks that are counted and not freed yet, by address.
class CountedBlocks {
 public:
  void add(void* data, std::size_t bytes, std::shared_ptr<CountedBytes::Counter> counter) {
    counter->add(static_cast<std::int64_t>(bytes));
    const std::lock_guard lock(mutex_);
    blocks_[data] = {static_cast<std::int64_t>(bytes), std::move(counter)};
    count_.store(blocks_.size(), std::memory_order_release);
  }

  void end(void* data) {
    if (count_.load(std::memory_order_acquire) == 0) return;
    const std::lock_guard lock(mutex_);
    const auto found = blocks_.find(data);
    if (found == blocks_.end()) return;
    found->second.counter->live -= found->second.bytes;
    blocks_.erase(found);
    count_.store(blocks_.size(), std::memory_order_release);
  }

 private:
  struct Block {
    std::int64_t bytes;
    std::shared_ptr<CountedBytes::Counter> counter;
  };
  std::mutex mutex_;
  std::unordered_map<void*, Block> blocks_;
  std::atomic<std::size_t> count_ = 0;
};

// Never destroyed, because tensors may die at any time before the process ends.
CountedBlocks* const counted_blocks = new CountedBlocks;

// Passes requests on to the allocator that was installed before, and counts the requests of threads with a
// CountedBytes.
class CountingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    c10::DataPtr data = inner_->allocate(bytes);
    // free_raw() gets nothing but an address, so only memory that can be freed by its address is counted.
    if (counting == nullptr || bytes == 0 || inner_->raw_deleter() == nullptr || data.get() != data.get_context())
      return data;
    void* const address = data.release_context();
    counted_blocks->add(address, bytes, counting->shared_from_this());
    return {address, address, &CountingAllocator::free_raw, data.device()};
  }
  c10::DeleterFnPtr raw_deleter() const override {
    return inner_->raw_deleter() == nullptr ? nullptr : &CountingAllocator::free_raw;
  }
  void copy_data(void* to, const void* from, std::size_t count) const override { inner_->copy_data(to, from, count); }

  void set_inner(c10::Allocator* inner) { inner_ = inner; }

 private:
  static void free_raw(void* data);

  c10::Allocator* inner_ = nullptr;
};

CountingAllocator* const counting_allocator = new CountingAllocator;

void CountingAllocator::free_raw(void* data) {
  counted_blocks->end(data);
  counting_allocator->inner_->raw_deleter()(data);
}

void install_counting() {
  static std::once_flag once;
  std::call_once(once, [] {
    counting_allocator->set_inner(c10::GetCPUAllocator());
    c10::SetCPUAllocator(counting_allocator);
  });
}

}  // namespace

CountedBytes::CountedBytes() : counter_(std::make_shared<Counter>()) {
  install_counting();
  REIGEN_ASSERT(counting == nullptr, "this thread counts already");
  counting = counter_.get();
}

CountedBytes::~CountedBytes() { counting = nullptr; }

std::int64_t CountedBytes::live() const { return counter_->live; }
std::int64_t CountedBytes::peak() const { return counter_->peak; }

}  // namespace reigen::tensor
