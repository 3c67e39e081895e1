// Checks that parts cover a tensor, each element exactly once.
//
// A part consists of a few boxes: whole rows, and the remainders of the first and the last row, dimension by dimension.
// If no two boxes share an element and together they have as many elements as the tensor, the boxes cover it. So
// neither memory nor time depends on the number of elements or rows, which may be arbitrarily large in a damaged
// manifest.
// Thread rule: no shared state.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "reigen/checkpoint/piece.h"

namespace reigen::checkpoint {

// A text that says what is wrong; nullopt if the parts cover the tensor. Every part must lie in the tensor
// (check_part). Cost: n·log n for n parts, and comparisons of boxes that lie side by side. If more than 10^8
// comparisons are needed, the function gives up and returns a text.
std::optional<std::string> what_parts_miss(const Shape& tensor, const std::vector<const Part*>& parts);

}  // namespace reigen::checkpoint
