// What strategies do with the weights of a whole model.
#pragma once

#include <vector>

#include "reigen/comm/communicator.h"
#include "reigen/tensor/parameter_range.h"

namespace reigen::parallel {

// x_r = mean of all ranks' x. Waits. The bytes that this rank gave.
std::uint64_t average_weights(const Communicator& world, const std::vector<ParameterRange>& parameters,
                              const char* tag);

// Throws InvalidArgument unless all are fp32 or fp64: a mean of 16-bit weights loses what their steps add up to.
void require_wide(const char* strategy, const std::vector<ParameterRange>& parameters);

// Autograd is told that the values are others now.
void note_change(const std::vector<ParameterRange>& parameters);

}  // namespace reigen::parallel
