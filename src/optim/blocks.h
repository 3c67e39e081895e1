// Parameters cut into blocks for the kernels, run by LibTorch's threads. The cut depends on sizes alone, so results are
// the same for any number of threads.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "optim/kernels/kernels.h"
#include "reigen/tensor/parameter_range.h"

namespace reigen::optim {

// Throws InvalidArgument "[<who>] ..." for types that no kernel computes with.
kernels::Layout layout_of(const std::string& who, const ParameterRange& range);

// Throws InvalidArgument unless ranks share all of the ranges in the same way, or none.
void check_shared_alike(const std::string& who, const std::vector<ParameterRange>& ranges);

// Whether the mean over the ranks is still to be taken of this rank's share of the gradients.
bool awaits_average(const ParameterRange& range);

// The segment's gradient where a kernel can read it: dense, of the values' type, in row-major order; one that is not is
// moved into its place in the range, and so is every one that other ranks read. nullptr without a gradient.
void* gradient_data(const ParameterRange& range, std::size_t segment);

struct Piece {
  std::size_t part = 0;    // which of the parameters
  std::int64_t first = 0;  // element in it
  std::int64_t count = 0;
};

// sizes[i]: elements of parameter i.
std::vector<Piece> cut(const std::vector<std::int64_t>& sizes);

// work(i) for every piece i, on several threads if that is worth it.
void for_each_piece(const std::vector<Piece>& pieces, const std::function<void(std::size_t)>& work);

}  // namespace reigen::optim
