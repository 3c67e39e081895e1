// The built-in recipes of reigen-train.
// Thread rule: constants, readable from any thread.
#pragma once

#include <vector>

#include "reigen/train/program.h"

namespace reigen::train {

const std::vector<Recipe>& recipes();

}  // namespace reigen::train
