// What train.precision means for a forward.
#pragma once

#include <memory>
#include <string>

#include "reigen/nn/autocast.h"

namespace reigen::train {

// While the guard lives, this thread computes so; null for fp32 and fp64, which are the weights' types.
std::unique_ptr<nn::Autocast> compute_type(const std::string& precision);

}  // namespace reigen::train
