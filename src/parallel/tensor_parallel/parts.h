// How a dimension is divided among the ranks of a group for activations (Region::sequence).
#pragma once

#include <cstdint>
#include <utility>

#include "reigen/layout/layout.h"

namespace reigen::parallel {

// Returns where the part of rank `rank` begins, and its size. The sizes are those of tensor::reduce_scatter(): of n
// rows each of P ranks gets n / P, and the first n % P ranks get one more.
inline std::pair<std::int64_t, std::int64_t> part_of_rank(std::int64_t n, int rank, int ranks) {
  return layout::chunk_of(n, 1, rank, ranks);
}

}  // namespace reigen::parallel
