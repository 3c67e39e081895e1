// The algorithms. Each gives the schedule of one rank; docs/algorithms.md has their cost and how they associate sums.
// K ranks, N elements in all, S segments.
#pragma once

#include "comm/schedule/schedule.h"

namespace reigen::comm::schedule {

// Everybody sends all it has to everybody who needs it: one step. Sums run in rank order.
Schedule flat_all_reduce(const Problem& problem);
Schedule flat_reduce(const Problem& problem);
Schedule flat_broadcast(const Problem& problem);
Schedule flat_gather(const Problem& problem);
Schedule flat_scatter(const Problem& problem);
Schedule flat_all_gather(const Problem& problem);
Schedule flat_barrier(const Problem& problem);  // no transfers: calls meet anyway

// Every rank adds its block of everybody's input, in rank order, in S pieces; what is ready leaves with the next piece.
Schedule direct_all_reduce(const Problem& problem);
Schedule direct_reduce_scatter(const Problem& problem);
Schedule direct_reduce(const Problem& problem);

// To the next rank, from the one before. Block b is added from rank b+1 on, around to rank b.
Schedule ring_all_reduce(const Problem& problem);
Schedule ring_reduce_scatter(const Problem& problem);
Schedule ring_all_gather(const Problem& problem);
Schedule ring_broadcast(const Problem& problem);

// Halves and doubles between ranks whose numbers differ in one bit; ranks beyond the largest power of two give their
// input to a neighbour before and get the result after. The lower rank's part stands first in every sum.
Schedule halving_doubling_all_reduce(const Problem& problem);
Schedule recursive_doubling_all_reduce(const Problem& problem);

// Binomial trees: ceil(log2 K) steps.
Schedule tree_broadcast(const Problem& problem);
Schedule tree_reduce(const Problem& problem);

// K-1 exchanges, each with another rank.
Schedule pairwise_all_to_all(const Problem& problem);

// In step k a token goes 2^k ranks further.
Schedule dissemination_barrier(const Problem& problem);

}  // namespace reigen::comm::schedule
