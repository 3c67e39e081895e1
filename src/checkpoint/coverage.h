// Whether parts make a tensor up, each element once.
//
// A part is a few boxes: whole rows, and what is left of a first and of a last one, by dimension. Boxes that have no
// element in common, and all together as many as the tensor, are the tensor: so neither memory nor time follows the
// number of elements or rows, which a damaged manifest may make as large as it likes.
// Thread rule: no shared state.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "reigen/checkpoint/piece.h"

namespace reigen::checkpoint {

// What is wrong; nothing: they do. Every part lies in the tensor (check_part). Cost: n·log n for n parts, and
// comparisons of those that lie side by side, of which more than 10^8 count as wrong.
std::optional<std::string> what_parts_miss(const Shape& tensor, const std::vector<const Part*>& parts);

}  // namespace reigen::checkpoint
