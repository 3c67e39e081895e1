// Memory that MPI may be reading or writing. An operation of MPI cannot be called back: when a group ends with some
// under way, their memory must never be handed out again.
// Thread rule: any thread. Shared by a group and its children.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>

#include "comm/call/block_table.h"

namespace reigen::comm::mpi {

class Arena : public std::enable_shared_from_this<Arena> {
 public:
  // Zeroed, aligned to 64 bytes; freed with its last owner.
  std::shared_ptr<void> allocate(std::size_t bytes);
  // The same with whatever was there.
  std::shared_ptr<void> take(std::size_t bytes);
  // A block of allocate(), as BlockTable::hold().
  std::shared_ptr<void> hold(const void* data) const { return allocated_->hold(data); }
  bool owns(const void* data, std::size_t bytes) const;
  // From here on what is freed stays mapped: deliberately lost.
  void quarantine();

 private:
  void free(std::byte* data);

  const std::shared_ptr<BlockTable> allocated_ = std::make_shared<BlockTable>();
  mutable std::mutex mutex_;
  std::map<const std::byte*, std::size_t> blocks_;
  bool quarantined_ = false;
};

}  // namespace reigen::comm::mpi
