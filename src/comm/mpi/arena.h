// Memory that MPI may read or write at any time. An MPI operation cannot be cancelled. If a group ends with operations
// in flight, MPI may still write to their memory, so this memory must never be handed out again.
// Thread rule: any thread. A group and all groups split from it share one arena.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>

#include "comm/call/block_table.h"

namespace reigen::comm::mpi {

class Arena : public std::enable_shared_from_this<Arena> {
 public:
  // Zeroed memory, aligned to 64 bytes, freed when its last owner drops it.
  std::shared_ptr<void> allocate(std::size_t bytes);
  // As allocate(), but the memory is not zeroed, and hold() returns null for it.
  std::shared_ptr<void> take(std::size_t bytes);
  // The block of allocate() in which `data` lies, as in BlockTable::hold().
  std::shared_ptr<void> hold(const void* data) const { return allocated_->hold(data); }
  bool owns(const void* data, std::size_t bytes) const;
  // From now on the arena leaks every block on purpose instead of freeing it, because MPI may still write to it.
  void quarantine();

 private:
  void free(std::byte* data);

  const std::shared_ptr<BlockTable> allocated_ = std::make_shared<BlockTable>();
  mutable std::mutex mutex_;
  std::map<const std::byte*, std::size_t> blocks_;
  bool quarantined_ = false;
};

}  // namespace reigen::comm::mpi
