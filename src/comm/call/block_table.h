// Blocks of memory that were handed out, so that a call can keep the one in which its buffer lies.
// Thread rule: any thread. Lives as long as the blocks that it handed out.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>

namespace reigen::comm {

class BlockTable : public std::enable_shared_from_this<BlockTable> {
 public:
  // The block, known here until its last owner drops it.
  std::shared_ptr<void> add(std::shared_ptr<void> block, std::size_t bytes);
  // The block in which `pointer` lies, kept as long as the result; null for other memory.
  std::shared_ptr<void> hold(const void* pointer) const;

 private:
  struct Entry {
    std::weak_ptr<void> block;
    std::size_t bytes;
  };

  mutable std::mutex mutex_;
  std::map<const std::byte*, Entry> entries_;  // by their begin
};

}  // namespace reigen::comm
