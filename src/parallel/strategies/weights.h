// Functions of strategies on the weights of a whole model.
#pragma once

#include <vector>

#include "reigen/comm/communicator.h"
#include "reigen/tensor/parameter_range.h"

namespace reigen::parallel {

// x_r = mean of all ranks' x. Waits. Returns the bytes that this rank gave.
std::uint64_t average_weights(const Communicator& world, const std::vector<ParameterRange>& parameters,
                              const char* tag);

// Throws InvalidArgument unless all weights are fp32 or fp64: a mean of 16-bit weights loses the small changes of
// steps.
void require_wide(const char* strategy, const std::vector<ParameterRange>& parameters);

// Tells autograd that the values have changed.
void note_change(const std::vector<ParameterRange>& parameters);

}  // namespace reigen::parallel
