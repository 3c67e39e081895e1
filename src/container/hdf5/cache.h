// The last chunks that were read, unpacked. Neighbouring samples share a chunk.
// Thread rule: any thread may call get(); threads that want the same chunk unpack it once.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace reigen::container {

class ChunkCache {
 public:
  using Bytes = std::shared_ptr<const std::vector<std::byte>>;
  using Key = std::pair<std::size_t, std::uint64_t>;  // dataset, chunk

  explicit ChunkCache(std::uint64_t most) : most_(most) {}

  // The chunk, which `load` makes if it is not there. The lock of the cache is not held meanwhile.
  Bytes get(const Key& key, const std::function<std::vector<std::byte>()>& load) {
    const std::shared_ptr<Slot> slot = slot_of(key);
    const std::lock_guard loading(slot->mutex);
    if (slot->bytes == nullptr) {
      slot->bytes = std::make_shared<const std::vector<std::byte>>(load());
      count(key, slot->bytes->size());
    }
    return slot->bytes;
  }

 private:
  struct Slot {
    std::mutex mutex;
    Bytes bytes;
  };
  struct Entry {
    std::shared_ptr<Slot> slot;
    std::uint64_t size = 0;
    std::list<Key>::iterator use;
  };

  std::shared_ptr<Slot> slot_of(const Key& key) {
    const std::lock_guard lock(mutex_);
    const auto found = entries_.find(key);
    if (found != entries_.end()) {
      uses_.splice(uses_.begin(), uses_, found->second.use);
      return found->second.slot;
    }
    uses_.push_front(key);
    return entries_.emplace(key, Entry{std::make_shared<Slot>(), 0, uses_.begin()}).first->second.slot;
  }

  // Counts the size of a new chunk, and forgets those that were not used for longest.
  void count(const Key& key, std::uint64_t size) {
    const std::lock_guard lock(mutex_);
    const auto found = entries_.find(key);
    if (found == entries_.end()) return;
    total_ += size - std::exchange(found->second.size, size);  // another thread may have counted it
    while (total_ > most_ && uses_.size() > 1) {
      const auto last = entries_.find(uses_.back());
      total_ -= last->second.size;
      entries_.erase(last);
      uses_.pop_back();
    }
  }

  std::uint64_t most_;
  std::mutex mutex_;
  std::map<Key, Entry> entries_;
  std::list<Key> uses_;  // the last used first
  std::uint64_t total_ = 0;
};

}  // namespace reigen::container
