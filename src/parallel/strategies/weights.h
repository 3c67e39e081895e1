// Functions that strategies call for the weights of a whole model.
#pragma once

#include <vector>

#include "reigen/comm/communicator.h"
#include "reigen/tensor/parameter_range.h"

namespace reigen::parallel {

// Sets the weights of every rank to the mean of the weights of all ranks. Waits for the call. On a GPU LibTorch's
// current stream waits, and not the host. Returns the number of bytes that this rank sent.
std::uint64_t average_weights(const Communicator& world, const std::vector<ParameterRange>& parameters,
                              const char* tag);

// Throws InvalidArgument unless all weights are fp32 or fp64: the mean of 16-bit weights is rounded so coarsely that it
// loses the small changes that steps make.
void require_wide(const char* strategy, const std::vector<ParameterRange>& parameters);

// Tells autograd that the values have changed.
void note_change(const std::vector<ParameterRange>& parameters);

}  // namespace reigen::parallel
