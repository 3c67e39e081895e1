// A table of the memory blocks that allocate() has returned. With it a call can keep alive the block in which its
// buffer lies.
// Thread rule: any thread. The table lives as long as the blocks that were added to it.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>

namespace reigen::comm {

class BlockTable : public std::enable_shared_from_this<BlockTable> {
 public:
  // Adds the block to the table and returns a pointer to it. The block leaves the table when the last owner of that
  // pointer drops it.
  std::shared_ptr<void> add(std::shared_ptr<void> block, std::size_t bytes);
  // Returns the block in which `pointer` lies, and keeps it alive as long as the result exists. Returns null if
  // `pointer` lies in other memory.
  std::shared_ptr<void> hold(const void* pointer) const;

 private:
  struct Entry {
    std::weak_ptr<void> block;
    std::size_t bytes;
  };

  mutable std::mutex mutex_;
  std::map<const std::byte*, Entry> entries_;  // by the address of the block's first byte
};

}  // namespace reigen::comm
