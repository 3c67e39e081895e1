// A strided tensor as rows that lie one after the other in row-major order. Dimensions of one element are dropped and
// neighbours that are one dimension in memory are joined, so that a tensor without gaps is a single row.
// Thread rule: no shared state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace reigen::format {

struct StridedRows {
  std::vector<std::uint64_t> counts;   // of the dimensions around the rows, outermost first
  std::vector<std::uint64_t> strides;  // of these, in elements
  std::uint64_t length = 1;            // of a row, in elements
  std::uint64_t stride = 1;            // inside a row, in elements
  std::uint64_t reach = 1;             // elements from the first to the end of the last one in memory
};

// `shape` and `strides` are of equal length, not negative, and their reach does not pass 2^63; no dimension is empty.
StridedRows rows_of(std::span<const std::int64_t> shape, std::span<const std::int64_t> strides);

// Calls `visit` with the offset of every row, in elements, in row-major order.
void for_each_row(const StridedRows& rows, const std::function<void(std::uint64_t)>& visit);

// into = `count` elements of `size` bytes (1, 2, 4 or 8), `stride` elements apart from `from` on.
void copy_row(const std::byte* from, std::uint64_t stride, std::uint64_t count, std::size_t size, std::byte* into);

}  // namespace reigen::format
