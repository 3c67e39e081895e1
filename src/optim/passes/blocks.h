// Cuts parameters into blocks for the kernels, which LibTorch's threads run. The cut depends on sizes alone, so
// results are the same for any number of threads.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "optim/kernels/kernels.h"
#include "reigen/tensor/parameter_range.h"

namespace reigen::optim {

// The element types of a range, as kernels name them. Throws InvalidArgument for element types that no kernel computes
// with. `who`: the optimizer or function that the error names, as "[<who>] ...".
kernels::Layout layout_of(const std::string& who, const ParameterRange& range);

// Throws InvalidArgument unless all ranges are on one device, and are divided between the same ranks in the same way or
// not at all.
void check_shared_alike(const std::string& who, const std::vector<ParameterRange>& ranges);

// Whether the range's gradients are this rank's own, and the mean over the ranks is still to be computed.
bool awaits_average(const ParameterRange& range);

// Returns the segment's gradient in the form that a kernel reads: dense, of the values' type, in row-major order. A
// gradient of another form is first moved into its place in the range, and so is every gradient that other ranks read.
// Returns nullptr if there is no gradient.
void* gradient_data(const ParameterRange& range, std::size_t segment);

struct Piece {
  std::size_t part = 0;    // number of the parameter
  std::int64_t first = 0;  // its first element in the parameter
  std::int64_t count = 0;
};

// sizes[i]: the number of elements of parameter i.
std::vector<Piece> cut(const std::vector<std::int64_t>& sizes);

// Runs work(i) for every piece i, on several threads if that is worth it.
void for_each_piece(const std::vector<Piece>& pieces, const std::function<void(std::size_t)>& work);

}  // namespace reigen::optim
