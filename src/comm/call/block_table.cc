#include "comm/call/block_table.h"

#include <iterator>
#include <utility>

namespace reigen::comm {

std::shared_ptr<void> BlockTable::add(std::shared_ptr<void> block, std::size_t bytes) {
  auto* const begin = static_cast<std::byte*>(block.get());
  std::shared_ptr<void> known(begin, [table = shared_from_this(), block = std::move(block)](std::byte* data) mutable {
    {
      std::lock_guard lock(table->mutex_);
      table->entries_.erase(data);
    }
    block.reset();  // only after the entry is gone, because the same address may be handed out again at once
  });
  std::lock_guard lock(mutex_);
  entries_[begin] = {known, bytes};
  return known;
}

std::shared_ptr<void> BlockTable::hold(const void* pointer) const {
  const auto* data = static_cast<const std::byte*>(pointer);
  std::lock_guard lock(mutex_);
  const auto after = entries_.upper_bound(data);
  if (after == entries_.begin()) return nullptr;
  const auto& [begin, entry] = *std::prev(after);
  return data < begin + entry.bytes ? entry.block.lock() : nullptr;
}

}  // namespace reigen::comm
