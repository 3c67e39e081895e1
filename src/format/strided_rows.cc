#include "format/strided_rows.h"

#include <cstring>

#include "base/check.h"

namespace reigen::format {
namespace {

template <std::size_t kSize>
void copy_elements(const std::byte* from, std::uint64_t stride, std::uint64_t count, std::byte* into) {
  for (std::uint64_t i = 0; i < count; ++i) std::memcpy(into + i * kSize, from + i * stride * kSize, kSize);
}

}  // namespace

StridedRows rows_of(std::span<const std::int64_t> shape, std::span<const std::int64_t> strides) {
  StridedRows rows;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    const auto count = static_cast<std::uint64_t>(shape[d]);
    const auto stride = static_cast<std::uint64_t>(strides[d]);
    REIGEN_ASSERT(count > 0, "dimension {} is empty", d);
    if (count == 1) continue;
    rows.reach += (count - 1) * stride;
    if (!rows.counts.empty() && rows.strides.back() == stride * count) {
      rows.counts.back() *= count;
      rows.strides.back() = stride;
    } else {
      rows.counts.push_back(count);
      rows.strides.push_back(stride);
    }
  }
  if (!rows.counts.empty()) {
    rows.length = rows.counts.back();
    rows.stride = rows.strides.back();
    rows.counts.pop_back();
    rows.strides.pop_back();
  }
  return rows;
}

void for_each_row(const StridedRows& rows, const std::function<void(std::uint64_t)>& visit) {
  std::vector<std::uint64_t> at(rows.counts.size(), 0);
  std::uint64_t offset = 0;
  for (;;) {
    visit(offset);
    std::size_t d = rows.counts.size();
    for (; d > 0; --d) {
      offset += rows.strides[d - 1];
      if (++at[d - 1] < rows.counts[d - 1]) break;
      offset -= rows.strides[d - 1] * rows.counts[d - 1];
      at[d - 1] = 0;
    }
    if (d == 0) return;
  }
}

void copy_row(const std::byte* from, std::uint64_t stride, std::uint64_t count, std::size_t size, std::byte* into) {
  if (stride == 1) {
    std::memcpy(into, from, count * size);
    return;
  }
  switch (size) {
    case 1: return copy_elements<1>(from, stride, count, into);
    case 2: return copy_elements<2>(from, stride, count, into);
    case 4: return copy_elements<4>(from, stride, count, into);
    case 8: return copy_elements<8>(from, stride, count, into);
    default: REIGEN_ASSERT(false, "elements of {} bytes", size);
  }
}

}  // namespace reigen::format
