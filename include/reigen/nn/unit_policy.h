// Chooses some of a model's units, for DataParallelOptions::units. With sharding, weights are gathered and gradients
// are averaged one chosen unit at a time. Parameters that are in no chosen unit are gathered at the first forward and
// remain gathered until the step. With large units ranks make fewer calls; with small units they need less memory.
//
//   every child:  model.units(), or units_of(sequential) (unit.h)
//   by type:      units_of_type<DecoderBlock>(model.units())
//   by size:      units_of_size(model.units(), 1'000'000)
//
// The results have the units in the order of `units`. The functions do not change the model. A chosen unit may lie
// inside another chosen unit. A parameter then belongs to the innermost chosen unit that contains it.
// Thread rule: any thread may call the functions, because they have no state.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <vector>

#include "reigen/nn/unit.h"

namespace reigen::nn {

// Returns the units whose modules are of the class `Module`, for example LinearImpl.
template <class Module>
std::vector<Unit> units_of_type(const std::vector<Unit>& units) {
  std::vector<Unit> chosen;
  std::copy_if(units.begin(), units.end(), std::back_inserter(chosen),
               [](const Unit& unit) { return dynamic_cast<const Module*>(&unit.module()) != nullptr; });
  return chosen;
}

// Returns the units whose parameters have at least `elements` elements. If a chosen unit lies inside another unit, its
// parameters do not count for the outer unit. Throws InvalidArgument if `elements` is below 1. It does the same as
// size_based_auto_wrap_policy of PyTorch's FSDP, whose units have at least 10^8 elements by default.
std::vector<Unit> units_of_size(const std::vector<Unit>& units, std::int64_t elements);

}  // namespace reigen::nn
