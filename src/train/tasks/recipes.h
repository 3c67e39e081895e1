// What reigen-train can train by name.
// Thread rule: constants.
#pragma once

#include <vector>

#include "reigen/train/program.h"

namespace reigen::train {

const std::vector<Recipe>& recipes();

}  // namespace reigen::train
