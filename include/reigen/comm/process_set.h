// Makes a group from some ranks of a group, given by their numbers.
//
//   if (auto even = reigen::process_set(world, {0, 2})) even->barrier();   // ranks 0 and 2; the others do nothing
//
// Thread rule: each rank makes this call and its other calls of `world` one after the other, in the same order as all
// other ranks.
#pragma once

#include <optional>
#include <vector>

#include "reigen/comm/communicator.h"

namespace reigen::comm {

// Returns the group of `ranks`, in which ranks[i] is rank i. Returns nullopt on a rank that is not in `ranks`.
// Collective and blocking: every rank of `world` calls it with the same `ranks`. Throws InvalidArgument on every rank
// if `ranks` differs between ranks; the text names a rank whose `ranks` differ, and shows them. Also throws
// InvalidArgument if `ranks` is empty, has a number twice, or has a number that is not a rank of `world`. Cost: one
// all_gather of 16 bytes per rank, then split().
std::optional<Communicator> process_set(Communicator world, const std::vector<int>& ranks);

}  // namespace reigen::comm

namespace reigen {
using comm::process_set;
}  // namespace reigen
