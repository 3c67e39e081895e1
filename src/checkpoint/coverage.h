// Checks that parts cover each element of a tensor exactly once.
//
// A part is divided into a few boxes: its whole rows, the rest of its first row and the rest of its last row. Each rest
// is divided again in the next dimension. The boxes cover the tensor if no two of them share an element, and if
// together they have as many elements as the tensor. Only boxes are compared. So neither memory nor time depends on the
// number of elements or rows, which may be arbitrarily large in a damaged manifest.
// Thread rule: no shared state.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "reigen/checkpoint/piece.h"

namespace reigen::checkpoint {

// A text that says what is wrong; nullopt if the parts cover the tensor. Every part must lie in the tensor
// (check_part). Cost: n·log n for n parts, and one comparison for each pair of boxes that overlap along one axis. If
// more than 10^8 comparisons are needed, the function gives up and returns a text.
std::optional<std::string> what_parts_miss(const Shape& tensor, const std::vector<const Part*>& parts);

}  // namespace reigen::checkpoint
