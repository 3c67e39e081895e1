#include "layout/packing.h"

#include <algorithm>
#include <map>
#include <utility>

namespace reigen::layout {
namespace {

constexpr std::int64_t kAlignment = 64;  // in bytes: the size of a cache line and of the widest vector register
// A spare block (Range::spares) is memory that the other ranks can read. If backward writes a gradient into a spare
// block, the gradient need not be copied for the other ranks. Gradients with fewer bytes than kLeastSpare get no spare
// block, because their copy stays within the caches and costs little.
constexpr std::int64_t kLeastSpare = std::int64_t{256} << 10;
constexpr std::int64_t kMostSpare = std::int64_t{25} << 20;  // most bytes of all spare blocks: the size of a bucket

// Divides the buffer into one share for each rank. Shares begin only at blocks of kBlockElements elements of a tensor.
// Share q begins at the first block whose middle lies after the first q/ranks of all elements. If there is no such
// block, the share is empty and begins at the end of the buffer.
std::vector<std::int64_t> cut(const Range& range, int ranks) {
  std::int64_t elements = 0;
  for (const Shape& shape : range.shapes) elements += numel(shape);
  std::vector<std::int64_t> bounds{0};
  std::int64_t before = 0;
  for (std::size_t i = 0; i < range.tensors.size(); ++i) {
    const std::int64_t count = numel(range.shapes[i]);
    for (std::int64_t first = 0; first < count; first += kBlockElements) {
      const std::int64_t block = std::min(kBlockElements, count - first);
      while (static_cast<int>(bounds.size()) < ranks &&
             (2 * before + block) * ranks > 2 * elements * static_cast<std::int64_t>(bounds.size())) {
        bounds.push_back(range.offsets[i] + first);
      }
      before += block;
    }
  }
  bounds.resize(static_cast<std::size_t>(ranks), range.elements);
  bounds.push_back(range.elements);
  return bounds;
}

// Returns the sizes of the spare blocks, in elements: one block for each size that a gradient has. The sizes for which
// a block saves the most copying come first. A size is left out if its block would exceed kMostSpare.
std::vector<std::int64_t> spare_sizes(const Range& range) {
  std::map<std::int64_t, std::int64_t> saved;
  for (const Shape& shape : range.shapes) {
    const std::int64_t count = numel(shape);
    if (count * element_bytes(range.type) >= kLeastSpare) saved[count] += count;
  }
  std::vector<std::pair<std::int64_t, std::int64_t>> order(saved.begin(), saved.end());
  std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  std::vector<std::int64_t> result;
  std::int64_t left = kMostSpare;
  for (const auto& [count, ignored] : order) {
    if (count * element_bytes(range.type) > left) continue;
    left -= count * element_bytes(range.type);
    result.push_back(count);
  }
  return result;
}

}  // namespace

std::int64_t element_bytes(format::TensorType type) { return static_cast<std::int64_t>(format::size_of(type)); }

std::int64_t aligned(std::int64_t elements, format::TensorType type) {
  const std::int64_t unit = kAlignment / element_bytes(type);
  return (elements + unit - 1) / unit * unit;
}

std::vector<PackingGroup> group_by_unit(const ModelSpec& model, const std::vector<std::size_t>& tensors,
                                        const std::vector<Shape>& boxes, std::size_t limit) {
  std::vector<PackingGroup> groups(model.units.size());
  for (std::size_t i = 0; i < groups.size(); ++i) groups[i].unit = i;
  std::size_t bytes = limit;
  for (const std::size_t i : tensors) {
    if (model.tensors[i].unit != kNoUnit) {
      groups[model.tensors[i].unit].tensors.push_back(i);
      continue;
    }
    if (bytes >= limit) {
      groups.emplace_back();
      bytes = 0;
    }
    groups.back().tensors.push_back(i);
    bytes += static_cast<std::size_t>(numel(boxes[i])) * format::size_of(model.tensors[i].type);
  }
  std::erase_if(groups, [](const PackingGroup& group) { return group.tensors.empty(); });
  return groups;
}

std::vector<Range> pack(const ModelSpec& model, const PackingGroup& group, const std::vector<Shape>& boxes, int shares,
                        bool has_spares) {
  std::vector<Range> ranges;
  for (const std::size_t i : group.tensors) {
    const TensorSpec& tensor = model.tensors[i];
    auto range = std::find_if(ranges.begin(), ranges.end(), [&](const Range& r) {
      return r.type == tensor.type && model.tensors[r.tensors.front()].optimizer == tensor.optimizer;
    });
    if (range == ranges.end()) {
      range =
          ranges.insert(ranges.end(), Range{.type = tensor.type, .unit = group.unit, .trainable = tensor.trainable});
    }
    range->tensors.push_back(i);
    range->shapes.push_back(boxes[i]);
    range->offsets.push_back(range->elements);
    range->elements = aligned(range->elements + numel(boxes[i]) + 1, tensor.type);  // at least one spare element
  }
  for (Range& range : ranges) {
    range.bounds = cut(range, shares);
    if (has_spares) range.spares = spare_sizes(range);
  }
  return ranges;
}

std::int64_t elements_with_spares(const Range& range) {
  std::int64_t elements = range.elements;
  for (const std::int64_t size : range.spares) elements += aligned(size, range.type);
  return elements;
}

}  // namespace reigen::layout
