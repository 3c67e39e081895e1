// Cuts parameters into blocks, on which LibTorch's threads run the kernels. The cut depends only on the sizes of the
// parameters, so results are the same for any number of threads.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "optim/kernels/kernels.h"
#include "reigen/tensor/parameter_range.h"

namespace reigen::optim {

// Returns the element types of a range, as a kernels::Layout. Throws InvalidArgument for element types that no kernel
// computes with. `who` is the optimizer or function that the error names, as "[<who>] ...".
kernels::Layout layout_of(const std::string& who, const ParameterRange& range);

// Throws InvalidArgument unless all ranges are on one device, and are divided between the same ranks in the same way or
// not at all.
void check_shared_alike(const std::string& who, const std::vector<ParameterRange>& ranges);

// Whether the range's gradients are this rank's own, and the mean over the ranks is still to be computed.
bool awaits_average(const ParameterRange& range);

// Returns the gradient of a segment (one parameter of the range) in the form that a kernel reads: dense, of the values'
// type, in row-major order. First moves the gradient to its place in the range's gradient buffer if it has a different
// form, or if other ranks read it there. Returns nullptr if there is no gradient.
void* gradient_data(const ParameterRange& range, std::size_t segment);

struct Piece {
  std::size_t part = 0;    // index of the parameter
  std::int64_t first = 0;  // index of the piece's first element in the parameter
  std::int64_t count = 0;
};

// Cuts parameters into pieces of at most kBlockElements elements. sizes[i] is the number of elements of parameter i.
std::vector<Piece> cut(const std::vector<std::int64_t>& sizes);

// Runs work(i) for every piece i, on several threads if that is worth it.
void for_each_piece(const std::vector<Piece>& pieces, const std::function<void(std::size_t)>& work);

}  // namespace reigen::optim
