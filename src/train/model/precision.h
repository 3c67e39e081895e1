// Applies train.precision to a forward.
#pragma once

#include <memory>
#include <string>

#include "reigen/nn/autocast.h"

namespace reigen::train {

// While the returned guard lives, operations of this thread on this device compute in this precision. Returns null for
// fp32 and fp64: then operations compute in the type of the weights.
std::unique_ptr<nn::Autocast> compute_type(const std::string& precision, const at::Device& device);

}  // namespace reigen::train
