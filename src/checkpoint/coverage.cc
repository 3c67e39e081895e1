#include "checkpoint/coverage.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>

namespace reigen::checkpoint {
namespace {

constexpr std::int64_t kMostComparisons = 100'000'000;

struct Box {
  Shape begin;
  Shape end;
};

// Adds the boxes that consist of the elements [first, first + count) of the part; count > 0. `at` is a position in the
// dimensions before `axis`. `first` counts from the first element at this position.
void add_boxes(const Part& part, std::size_t axis, Shape at, std::int64_t first, std::int64_t count,
               std::vector<Box>& boxes) {
  std::int64_t row = 1;
  for (std::size_t i = axis + 1; i < part.shape.size(); ++i) row *= part.shape[i];
  const auto add_rows = [&](std::int64_t begin, std::int64_t rows) {
    Box box{at, at};
    for (std::size_t i = 0; i < part.shape.size(); ++i) {
      if (i == axis) box.begin[i] = begin;
      const std::int64_t size = i < axis ? 1 : i == axis ? rows : part.shape[i];
      box.begin[i] += part.offset[i];
      box.end[i] = box.begin[i] + size;
    }
    boxes.push_back(std::move(box));
  };
  if (part.shape.empty()) return boxes.push_back({});
  const auto add_within = [&](std::int64_t begin, std::int64_t elements) {
    Shape inner = at;
    inner[axis] = begin / row;
    add_boxes(part, axis + 1, std::move(inner), begin % row, elements, boxes);
  };
  if (first % row != 0) {
    const std::int64_t elements = std::min(count, row - first % row);
    add_within(first, elements);
    first += elements;
    count -= elements;
  }
  if (count >= row) add_rows(first / row, count / row);
  if (count % row != 0) add_within(first + count / row * row, count % row);
}

// The axis along which the boxes have the largest number of different begins.
std::size_t most_divided_axis(std::size_t dimensions, const std::vector<Box>& boxes) {
  std::size_t best = 0;
  std::size_t most = 0;
  for (std::size_t axis = 0; axis < dimensions; ++axis) {
    std::set<std::int64_t> begins;
    for (const Box& box : boxes) begins.insert(box.begin[axis]);
    if (begins.size() <= most) continue;
    most = begins.size();
    best = axis;
  }
  return best;
}

// The row-major index of the first element that both boxes have; nullopt if they share none.
std::optional<std::int64_t> common_element(const Shape& tensor, const Box& a, const Box& b) {
  std::int64_t element = 0;
  for (std::size_t i = 0; i < tensor.size(); ++i) {
    const std::int64_t begin = std::max(a.begin[i], b.begin[i]);
    if (begin >= std::min(a.end[i], b.end[i])) return std::nullopt;
    element = element * tensor[i] + begin;
  }
  return element;
}

}  // namespace

std::optional<std::string> what_parts_miss(const Shape& tensor, const std::vector<const Part*>& parts) {
  const std::int64_t all = layout::numel(tensor);
  std::int64_t left = all;
  std::vector<Box> boxes;
  for (const Part* part : parts) {
    if (part->count > left) return fmt::format("an overlap: more than {} elements", all);
    left -= part->count;
    if (part->count > 0) add_boxes(*part, 0, Shape(tensor.size(), 0), part->first, part->count, boxes);
  }
  const std::size_t axis = most_divided_axis(tensor.size(), boxes);
  if (!tensor.empty()) {
    std::sort(boxes.begin(), boxes.end(), [&](const Box& a, const Box& b) { return a.begin[axis] < b.begin[axis]; });
  }
  std::int64_t comparisons = 0;
  std::vector<const Box*> beside;  // earlier boxes that, along `axis`, overlap `box`
  for (const Box& box : boxes) {
    if (!tensor.empty()) std::erase_if(beside, [&](const Box* other) { return other->end[axis] <= box.begin[axis]; });
    comparisons += static_cast<std::int64_t>(beside.size());
    if (comparisons > kMostComparisons) return "more parts side by side than can be compared";
    for (const Box* other : beside) {
      if (const auto element = common_element(tensor, *other, box))
        return fmt::format("an overlap at element {}", *element);
    }
    beside.push_back(&box);
  }
  if (left > 0) return fmt::format("a hole: {} elements", all - left);
  return std::nullopt;
}

}  // namespace reigen::checkpoint
