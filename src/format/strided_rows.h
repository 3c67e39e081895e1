// A strided tensor as rows, in row-major order. Dimensions of one element are dropped, and neighbouring dimensions that
// are one dimension in memory are joined, so that a tensor without gaps is a single row. Thread rule: no shared state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace reigen::format {

struct StridedRows {
  std::vector<std::uint64_t> counts;   // sizes of the dimensions outside of a row, outermost first
  std::vector<std::uint64_t> strides;  // strides of these dimensions, in elements
  std::uint64_t length = 1;            // elements of a row
  std::uint64_t stride = 1;            // distance between neighbouring elements of a row, in elements
  std::uint64_t reach = 1;             // elements in memory from the first to the last, both included
};

// The rows of a tensor. `shape` and `strides` must have equal length and no negative numbers, the reach must not exceed
// 2^63, and no dimension may be empty.
StridedRows rows_of(std::span<const std::int64_t> shape, std::span<const std::int64_t> strides);

// Calls `visit` with the offset of every row's first element, in elements, in row-major order.
void for_each_row(const StridedRows& rows, const std::function<void(std::uint64_t)>& visit);

// Copies `count` elements of `size` bytes (1, 2, 4 or 8) to `into`, one after the other. The first is at `from`, and
// each further one is `stride` elements after the previous one.
void copy_row(const std::byte* from, std::uint64_t stride, std::uint64_t count, std::size_t size, std::byte* into);

}  // namespace reigen::format
