// The option model.kernels of recipes, which says which operations compute a model's layers (nn/kernels.h).
// Thread rule: pure functions.
#pragma once

#include <string>

#include "reigen/nn/kernels.h"
#include "reigen/train/config.h"

namespace reigen::train {

// `operations`: those of the model that Reigen has, for --help.
ModelOption kernels_option(const std::string& operations);

// The value of the option.
nn::Kernels kernels_of(const Config& config);

}  // namespace reigen::train
