// A pool of memory blocks for temporary use. It returns the same blocks again, so their pages remain mapped.
// Thread rule: one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "base/check.h"
#include "reigen/comm/communicator.h"

namespace reigen::parallel {

class BlockPool {
 public:
  // `device`: the device of the blocks, which is the CPU or the GPU of the group `memory`. A GPU block may be given
  // back and taken again while LibTorch's current stream still works on it. So all work on a block must be on this
  // stream.
  explicit BlockPool(Communicator memory, const Device& device = {}) : memory_(std::move(memory)), device_(device) {}

  // Returns a block of at least `bytes` bytes: the smallest free block that is large enough. The block still has the
  // contents of its last use. If no free block is large enough, one new block is allocated in place of all free blocks.
  // On the CPU these free blocks are freed now; on a GPU free_retired() frees them later. The new block is larger than
  // each of them, so it can serve their requests too. If the same series of requests repeats, nothing is allocated
  // after the first few repetitions. If k blocks are in use at a time, the pool may come to hold k blocks of the
  // largest size.
  std::shared_ptr<void> take(std::size_t bytes) {
    const auto found = free_.lower_bound(bytes);
    if (found != free_.end()) {
      auto block = std::move(found->second);
      free_.erase(found);
      return block;
    }
    retire();
    allocations_ += 1;
    std::shared_ptr<void> memory = memory_.allocate(bytes, device_);
    void* const data = memory.get();
    return {data, Owner{std::move(memory), bytes}};
  }
  // Takes back a block that take() returned; null is allowed. The pool sorts a block by the block's own size, not by
  // the size of its last request.
  void give_back(std::shared_ptr<void> block) {
    if (!block) return;
    const Owner* const owner = std::get_deleter<Owner>(block);
    REIGEN_ASSERT(owner != nullptr, "a block that no pool gave out comes back");
    const std::size_t bytes = owner->bytes;
    free_.emplace(bytes, std::move(block));
  }

  // Frees the GPU blocks that take() has retired because they were too small. When GPU memory is freed, the host waits
  // for all work of the GPU. This work may wait for a call that another rank makes later in its backward, so take()
  // does not free the blocks. If has_retired() is true, call free_retired() between two steps, after the current stream
  // has done its work.
  void free_retired() { retired_.clear(); }
  bool has_retired() const { return !retired_.empty(); }

  std::int64_t allocations() const { return allocations_; }

 private:
  // The deleter of a block. It keeps the memory alive as long as the block, and contains the block's size.
  struct Owner {
    std::shared_ptr<void> memory;
    std::size_t bytes;
    void operator()(void*) const {}
  };
  void retire() {
    if (!device_.is_cpu()) {
      for (auto& [bytes, block] : free_) retired_.push_back(std::move(block));
    }
    free_.clear();
  }

  Communicator memory_;
  Device device_;
  std::multimap<std::size_t, std::shared_ptr<void>> free_;
  std::vector<std::shared_ptr<void>> retired_;
  std::int64_t allocations_ = 0;
};

}  // namespace reigen::parallel
