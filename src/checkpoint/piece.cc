#include "reigen/checkpoint/piece.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>

#include "base/check.h"

namespace reigen::checkpoint {

std::int64_t numel(const Shape& shape) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max() / 16;  // also in bytes
  std::int64_t count = 1;
  bool empty = false;
  for (const std::int64_t size : shape) {
    REIGEN_CHECK(size >= 0, "a tensor has a negative size: [{}]", fmt::join(shape, ", "));
    empty = empty || size == 0;
    REIGEN_CHECK(size == 0 || count <= kMost / size, "a tensor is too large: [{}]", fmt::join(shape, ", "));
    count *= std::max<std::int64_t>(size, 1);
  }
  return empty ? 0 : count;
}

Part whole(const Shape& tensor) {
  return {.offset = Shape(tensor.size(), 0), .shape = tensor, .first = 0, .count = numel(tensor)};
}

Part flat_part(const Shape& tensor, std::int64_t first, std::int64_t count) {
  Part part = whole(tensor);
  part.first = first;
  part.count = count;
  return part;
}

void check_part(const std::string& name, const Shape& tensor, const Part& part) {
  bool fits = part.offset.size() == tensor.size() && part.shape.size() == tensor.size();
  for (std::size_t i = 0; i < tensor.size() && fits; ++i) {
    fits = part.offset[i] >= 0 && part.shape[i] >= 0 && part.shape[i] <= tensor[i] &&
           part.offset[i] <= tensor[i] - part.shape[i];
  }
  REIGEN_CHECK(fits, "a part of {} does not lie in it\n  got: [{}] from ({}) on   expected: inside of [{}]", name,
               fmt::join(part.shape, ", "), fmt::join(part.offset, ", "), fmt::join(tensor, ", "));
  const std::int64_t box = numel(part.shape);
  REIGEN_CHECK(part.first >= 0 && part.count >= 0 && part.first <= box && part.count <= box - part.first,
               "a part of {} does not lie in its box\n  got: {} elements from {} on   expected: at most {}", name,
               part.count, part.first, box);
}

std::vector<Run> runs_of(const Shape& tensor, const Part& part) {
  std::vector<Run> runs;
  if (part.count == 0) return runs;
  // Behind this dimension the box takes all, so what lies one after the other in it does so in the tensor.
  std::size_t split = tensor.size();
  std::int64_t row = 1;
  while (split > 0 && part.shape[split - 1] == tensor[split - 1]) row *= tensor[--split];
  if (split > 0) row *= part.shape[split - 1];
  for (std::int64_t local = 0; local < part.count;) {
    const std::int64_t element = part.first + local;
    const std::int64_t in_row = element % row;
    // The row's begin in the tensor, from the last dimension that numbers rows to the first.
    std::int64_t rows = element / row;
    std::int64_t stride = 1;
    for (std::size_t i = tensor.size(); i > split; --i) stride *= tensor[i - 1];
    std::int64_t global = in_row;
    if (split > 0) {
      global += part.offset[split - 1] * stride;
      stride *= tensor[split - 1];
      for (std::size_t i = split - 1; i > 0; --i) {
        global += (part.offset[i - 1] + rows % part.shape[i - 1]) * stride;
        rows /= part.shape[i - 1];
        stride *= tensor[i - 1];
      }
    }
    const std::int64_t count = std::min(row - in_row, part.count - local);
    if (!runs.empty() && runs.back().global + runs.back().count == global) {
      runs.back().count += count;
    } else {
      runs.push_back({global, local, count});
    }
    local += count;
  }
  return runs;
}

void for_each_common(std::span<const Run> to, std::span<const Run> from,
                     const std::function<void(std::int64_t, std::int64_t, std::int64_t)>& copy) {
  for (std::size_t t = 0, f = 0; t < to.size() && f < from.size();) {
    const std::int64_t begin = std::max(to[t].global, from[f].global);
    const std::int64_t to_end = to[t].global + to[t].count;
    const std::int64_t from_end = from[f].global + from[f].count;
    const std::int64_t end = std::min(to_end, from_end);
    if (begin < end) {
      copy(to[t].local + begin - to[t].global, from[f].local + begin - from[f].global, end - begin);
    }
    (to_end <= from_end ? t : f) += 1;
  }
}

}  // namespace reigen::checkpoint
