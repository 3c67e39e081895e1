#include "comm/shared_memory/heap.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "base/check.h"
#include "reigen/base/bytes.h"

namespace reigen::comm::shared_memory {

namespace {

constexpr std::size_t kSegmentBytes = 4 * kMiB;  // small requests share segments of this size
constexpr std::size_t kPage = 4096;
constexpr std::size_t kLine = 64;

std::size_t round_up(std::size_t value, std::size_t unit) { return (value + unit - 1) / unit * unit; }

}  // namespace

Heap::Heap(std::shared_ptr<Medium> medium)
    : medium_(std::move(medium)),
      directory_segment_(Segment::create(round_up(sizeof(HeapDirectory), kPage))),
      directory_(new (directory_segment_->data()) HeapDirectory) {}

void Heap::add_segment(std::size_t size) {
  REIGEN_CHECK(segments_.size() < kSegmentsMax,
               "too many pieces of shared memory: {} in use; allocate fewer, larger buffers", segments_.size());
  auto segment = medium_ ? medium_->create(size) : Segment::create(size);
  const auto number = static_cast<std::uint32_t>(segments_.size());
  directory_->segments[number] = segment->address();
  directory_->count.store(number + 1, std::memory_order_release);
  by_address_[segment->data()] = number;
  free_.push_back({number, 0, size, 0});
  segments_.push_back(std::move(segment));
}

std::byte* Heap::take(std::size_t size, std::size_t alignment) {
  for (auto it = free_.begin(); it != free_.end(); ++it) {
    const std::size_t begin = round_up(it->offset, alignment);
    if (begin + size > it->offset + it->size) continue;
    const FreeBlock block = *it;
    it = free_.erase(it);
    const std::size_t end = begin + size;
    const std::size_t used_end = block.offset + block.used;
    const auto used_between = [&](std::size_t from, std::size_t to) {
      return used_end > from ? std::min(used_end, to) - from : 0;
    };
    const std::size_t block_end = block.offset + block.size;
    if (end < block_end) it = free_.insert(it, {block.segment, end, block_end - end, used_between(end, block_end)});
    if (begin > block.offset) {
      free_.insert(it, {block.segment, block.offset, begin - block.offset, used_between(block.offset, begin)});
    }
    std::byte* data = segments_[block.segment]->data() + begin;
    if (const std::size_t used = used_between(begin, end); medium_ && used > 0) {
      medium_->zero(data, used);
    } else {
      std::memset(data, 0, used);
    }
    return data;
  }
  return nullptr;
}

std::shared_ptr<void> Heap::allocate(std::size_t bytes) {
  if (bytes > SIZE_MAX / 2)
    throw InvalidArgument(fmt::format("allocate: {} bytes are more than any machine has", bytes));
  const std::size_t size = round_up(std::max<std::size_t>(bytes, 1), kLine);
  const std::size_t alignment = size >= kPage ? kPage : kLine;
  std::lock_guard lock(mutex_);
  std::byte* data = take(size, alignment);
  if (data == nullptr) {
    add_segment(round_up(std::max(size, kSegmentBytes), 2 * kMiB));
    data = take(size, alignment);
  }
  REIGEN_ASSERT(data != nullptr, "{} bytes do not fit into a fresh segment", size);
  std::shared_ptr<void> block(data, [heap = shared_from_this(), size](void* pointer) {
    heap->give_back(static_cast<std::byte*>(pointer), size);
  });
  return live_->add(std::move(block), size);
}

void Heap::give_back(std::byte* data, std::size_t size) {
  std::lock_guard lock(mutex_);
  if (quarantined_) return;
  const auto owner = std::prev(by_address_.upper_bound(data));
  const FreeBlock block{owner->second, static_cast<std::size_t>(data - owner->first), size, size};
  const auto before = [](const FreeBlock& a, const FreeBlock& b) {
    return std::pair(a.segment, a.offset) < std::pair(b.segment, b.offset);
  };
  auto it = free_.insert(std::upper_bound(free_.begin(), free_.end(), block, before), block);
  const auto merge = [this](auto first, auto second) {
    if (first->segment != second->segment || first->offset + first->size != second->offset) return second;
    first->used = second->used > 0 ? first->size + second->used : first->used;
    first->size += second->size;
    return std::prev(free_.erase(second));
  };
  if (it != free_.begin()) it = merge(std::prev(it), it);
  if (std::next(it) != free_.end()) merge(it, std::next(it));
}

Location Heap::locate(const void* pointer, std::size_t bytes, const std::string& group) const {
  const auto* data = static_cast<const std::byte*>(pointer);
  std::lock_guard lock(mutex_);
  if (const auto after = by_address_.upper_bound(data); after != by_address_.begin()) {
    const auto [begin, number] = *std::prev(after);
    if (data + bytes <= begin + segments_[number]->size())
      return {number, static_cast<std::uint64_t>(data - begin), Visible::kInHeap};
  }
  if (const auto after = common_.upper_bound(data); after != common_.begin()) {
    const auto& [begin, common] = *std::prev(after);
    // split() names a group after its parent: "PARENT/..."
    const bool has_it = group == common.group || group.starts_with(common.group + "/");
    if (has_it && data + bytes <= begin + common.address.size)
      return {common.address.inode, static_cast<std::uint64_t>(data - begin), Visible::kInCommon};
  }
  return {};
}

bool Heap::is_common(const void* pointer, std::size_t bytes) const {
  const auto* data = static_cast<const std::byte*>(pointer);
  std::lock_guard lock(mutex_);
  const auto after = common_.lower_bound(data + bytes);
  if (after == common_.begin()) return false;
  const auto& [begin, common] = *std::prev(after);
  return data < begin + common.address.size;
}

std::shared_ptr<void> Heap::add_common(std::shared_ptr<Segment> segment, const std::string& group) {
  std::byte* const data = segment->data();
  std::lock_guard lock(mutex_);
  common_[data] = {segment->address(), group};
  has_common_.store(true, std::memory_order_relaxed);
  return {data, [heap = shared_from_this(), segment = std::move(segment)](std::byte* begin) mutable {
            std::lock_guard guard(heap->mutex_);
            heap->common_.erase(begin);
          }};
}

std::byte* Heap::resolve_common(const Location& location) const {
  std::lock_guard lock(mutex_);
  for (const auto& [begin, common] : common_) {
    if (common.address.inode == location.segment) return const_cast<std::byte*>(begin) + location.offset;
  }
  return nullptr;
}

void Heap::quarantine() {
  std::lock_guard lock(mutex_);
  quarantined_ = true;
  free_.clear();
}

PeerHeap::PeerHeap(const SegmentAddress& directory, std::shared_ptr<Medium> medium)
    : medium_(std::move(medium)),
      directory_segment_(Segment::open(directory)),
      directory_(reinterpret_cast<const HeapDirectory*>(directory_segment_->data())) {}

std::byte* PeerHeap::resolve(const Location& location) {
  if (location.segment >= segments_.size()) segments_.resize(location.segment + 1);
  auto& segment = segments_[location.segment];
  if (segment == nullptr) {
    REIGEN_ASSERT(location.segment < directory_->count.load(std::memory_order_acquire),
                  "segment {} was never announced", location.segment);
    const SegmentAddress& address = directory_->segments[location.segment];
    segment = medium_ ? medium_->open(address) : Segment::open(address);
  }
  return segment->data() + location.offset;
}

}  // namespace reigen::comm::shared_memory
