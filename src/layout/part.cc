#include "reigen/layout/part.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.h"

namespace reigen::layout {

std::int64_t numel(const Shape& shape) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max() / 16;  // the size in bytes must not overflow
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
  const Shape& seen = part.view.empty() ? tensor : part.view;
  bool fits = part.offset.size() == seen.size() && part.shape.size() == seen.size() && numel(seen) == numel(tensor);
  for (std::size_t i = 0; i < seen.size() && fits; ++i) {
    fits = part.offset[i] >= 0 && part.shape[i] >= 0 && part.shape[i] <= seen[i] &&
           part.offset[i] <= seen[i] - part.shape[i];
  }
  REIGEN_CHECK(fits, "a part of {} does not lie in it\n  got: [{}] from ({}) on   expected: inside of [{}]", name,
               fmt::join(part.shape, ", "), fmt::join(part.offset, ", "), fmt::join(seen, ", "));
  const std::int64_t box = numel(part.shape);
  REIGEN_CHECK(part.first >= 0 && part.count >= 0 && part.first <= box && part.count <= box - part.first,
               "a part of {} does not lie in its box\n  got: {} elements from {} on   expected: at most {}", name,
               part.count, part.first, box);
}

Shape local_shape(const Shape& tensor, const Part& part) {
  if (part.view.empty()) return part.shape;
  REIGEN_ASSERT(part.view.size() == tensor.size() + 1, "a view that does not divide one dimension");
  Shape shape(part.shape.begin() + 1, part.shape.end());
  shape[0] *= part.shape[0];
  return shape;
}

std::vector<PlainPart> plain_parts(const Shape& tensor, const Part& part) {
  if (part.view.empty()) return {{part, 0}};
  REIGEN_ASSERT(part.view.size() == tensor.size() + 1 && part.shape[0] == part.view[0],
                "a view that does not divide the first dimension");
  std::vector<PlainPart> result;
  const Part section{.offset = {part.offset.begin() + 1, part.offset.end()},
                     .shape = {part.shape.begin() + 1, part.shape.end()}};
  const std::int64_t each = numel(section.shape);
  for (std::int64_t k = 0; k < part.view[0]; ++k) {
    const std::int64_t begin = std::max(part.first, k * each);
    const std::int64_t end = std::min(part.first + part.count, (k + 1) * each);
    if (begin >= end) continue;
    Part one = section;
    one.offset[0] += k * part.view[1];
    one.first = begin - k * each;
    one.count = end - begin;
    result.push_back({std::move(one), begin - part.first});
  }
  return result;
}

Runs::Runs(Shape tensor, Part part)
    : tensor_(part.view.empty() ? std::move(tensor) : part.view), part_(std::move(part)), split_(tensor_.size()) {
  while (split_ > 0 && part_.shape[split_ - 1] == tensor_[split_ - 1]) row_ *= tensor_[--split_];
  if (split_ > 0) row_ *= part_.shape[split_ - 1];
}

std::optional<Run> Runs::next() {
  if (local_ >= part_.count) return std::nullopt;
  const std::int64_t element = part_.first + local_;
  const std::int64_t in_row = element % row_;
  // A row is a run of `row_` elements that are contiguous in the tensor. The code below computes at which element of
  // the tensor the row begins. It splits the row's number into one index for each dimension, the last dimension first.
  std::int64_t rows = element / row_;
  std::int64_t stride = 1;
  for (std::size_t i = tensor_.size(); i > split_; --i) stride *= tensor_[i - 1];
  std::int64_t global = in_row;
  if (split_ > 0) {
    global += part_.offset[split_ - 1] * stride;
    stride *= tensor_[split_ - 1];
    for (std::size_t i = split_ - 1; i > 0; --i) {
      global += (part_.offset[i - 1] + rows % part_.shape[i - 1]) * stride;
      rows /= part_.shape[i - 1];
      stride *= tensor_[i - 1];
    }
  }
  const Run run{.global = global, .local = local_, .count = std::min(row_ - in_row, part_.count - local_)};
  local_ += run.count;
  return run;
}

void for_each_common(const Shape& tensor, const Part& to, const Part& from,
                     const std::function<void(std::int64_t, std::int64_t, std::int64_t)>& copy) {
  Runs to_runs(tensor, to);
  Runs from_runs(tensor, from);
  for (auto t = to_runs.next(), f = from_runs.next(); t && f;) {
    const std::int64_t begin = std::max(t->global, f->global);
    const std::int64_t to_end = t->global + t->count;
    const std::int64_t from_end = f->global + f->count;
    const std::int64_t end = std::min(to_end, from_end);
    if (begin < end) copy(t->local + begin - t->global, f->local + begin - f->global, end - begin);
    if (to_end <= from_end)
      t = to_runs.next();
    else
      f = from_runs.next();
  }
}

}  // namespace reigen::layout
