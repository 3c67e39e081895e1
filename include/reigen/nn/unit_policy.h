// Chooses the units of a model whose weights are gathered, and whose gradients are averaged, one unit at a time
// (DataParallelOptions::units). Parameters in none of the chosen units are gathered at the first forward and remain
// gathered until the step. Large units mean fewer exchanges; small units mean less memory.
//
//   every child:  model.units(), or units_of(sequential) (unit.h)
//   by type:      units_of_type<DecoderBlock>(model.units())
//   by size:      units_of_size(model.units(), 1'000'000)
//
// The functions keep the order of units and change nothing. A unit may lie inside another unit: a parameter belongs to
// the innermost chosen unit.
// Thread rule: pure functions.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <vector>

#include "reigen/nn/unit.h"

namespace reigen::nn {

// The units whose modules are of this class, such as LinearImpl.
template <class Module>
std::vector<Unit> units_of_type(const std::vector<Unit>& units) {
  std::vector<Unit> chosen;
  std::copy_if(units.begin(), units.end(), std::back_inserter(chosen),
               [](const Unit& unit) { return dynamic_cast<const Module*>(&unit.module()) != nullptr; });
  return chosen;
}

// The units with at least `elements` elements of parameters, not counting the parameters of chosen units inside them.
// Throws InvalidArgument if `elements` is below 1. It follows size_based_auto_wrap_policy of PyTorch's FSDP, whose
// units have at least 10^8 elements by default.
std::vector<Unit> units_of_size(const std::vector<Unit>& units, std::int64_t elements);

}  // namespace reigen::nn
