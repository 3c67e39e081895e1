// Which of a model's units ranks gather and average by themselves (DataParallelOptions::units). What is in none of the
// chosen ones comes with the first forward and stays until backward is over, so a policy weighs fewer exchanges against
// less memory.
//
//   every child:  model.units(), or units_of(sequential) (unit.h)
//   by type:      units_of_type<DecoderBlock>(model.units())
//   by size:      units_of_size(model.units(), 1'000'000)
//
// They keep the order and change nothing. Units may lie in units: a parameter is of the innermost chosen one.
// Thread rule: pure functions.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <vector>

#include "reigen/nn/unit.h"

namespace reigen::nn {

// Those whose modules are of the class, as LinearImpl.
template <class Module>
std::vector<Unit> units_of_type(const std::vector<Unit>& units) {
  std::vector<Unit> chosen;
  std::copy_if(units.begin(), units.end(), std::back_inserter(chosen),
               [](const Unit& unit) { return dynamic_cast<const Module*>(&unit.module()) != nullptr; });
  return chosen;
}

// Those that have at least so many elements of parameters, without what smaller chosen ones have of these. Throws
// InvalidArgument below 1. As size_based_auto_wrap_policy of PyTorch's FSDP, whose smallest unit has 10^8.
std::vector<Unit> units_of_size(const std::vector<Unit>& units, std::int64_t elements);

}  // namespace reigen::nn
