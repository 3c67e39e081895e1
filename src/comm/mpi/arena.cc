#include "comm/mpi/arena.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "reigen/base/bytes.h"
#include "reigen/base/error.h"

namespace reigen::comm::mpi {

std::shared_ptr<void> Arena::allocate(std::size_t bytes) {
  auto block = take(bytes);
  std::memset(block.get(), 0, bytes);
  return allocated_->add(std::move(block), bytes);
}

std::shared_ptr<void> Arena::take(std::size_t bytes) {
  const std::size_t size = (std::max<std::size_t>(bytes, 1) + 63) / 64 * 64;
  auto* data = static_cast<std::byte*>(std::aligned_alloc(64, size));
  if (data == nullptr) {
    throw IoError(Report{.what = "out of memory",
                         .got = {},
                         .expected = fmt::format("{} more", format_bytes(size)),
                         .fix = "take a smaller model or batch"},
                  ExitCode::kOsResource);
  }
  {
    std::lock_guard lock(mutex_);
    blocks_[data] = size;
  }
  return {data, [arena = shared_from_this()](void* pointer) { arena->free(static_cast<std::byte*>(pointer)); }};
}

void Arena::free(std::byte* data) {
  std::lock_guard lock(mutex_);
  blocks_.erase(data);
  if (!quarantined_) std::free(data);
}

bool Arena::owns(const void* data, std::size_t bytes) const {
  const auto* begin = static_cast<const std::byte*>(data);
  std::lock_guard lock(mutex_);
  const auto after = blocks_.upper_bound(begin);
  if (after == blocks_.begin()) return false;
  const auto& [block, size] = *std::prev(after);
  return begin + bytes <= block + size;
}

void Arena::quarantine() {
  std::lock_guard lock(mutex_);
  quarantined_ = true;
}

}  // namespace reigen::comm::mpi
