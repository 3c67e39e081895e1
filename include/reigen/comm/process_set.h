// A group of some of a group's ranks, by their numbers.
//
//   if (auto even = reigen::process_set(world, {0, 2})) even->barrier();   // ranks 0 and 2; the others do nothing
//
// Thread rule: as Communicator::split().
#pragma once

#include <optional>
#include <vector>

#include "reigen/comm/communicator.h"

namespace reigen::comm {

// The group of `ranks` in which ranks[i] is rank i; nothing where this rank is not among them. Collective and blocking:
// every rank of `world` calls it with the same numbers, and gets InvalidArgument, naming a rank and its numbers, where
// they differ, are not ranks of `world`, come twice or are none. Cost: one all_gather of P numbers, then split().
std::optional<Communicator> process_set(Communicator world, const std::vector<int>& ranks);

}  // namespace reigen::comm

namespace reigen {
using comm::process_set;
}  // namespace reigen
